//! What makes a generated id sortable by time.

use std::time::{SystemTime, UNIX_EPOCH};

/// `20260131T235959123Z`
pub(super) fn timestamp(time: SystemTime) -> String {
    /// 9999-12-31 23:59:59.999
    const LAST: u128 = 253_402_300_799_999;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis().min(LAST);
    let (days, rest) = (since / 86_400_000, since % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}{milli:03}Z")
}

/// The Gregorian date `days` after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last one, in eras of 400 years or 146,097 days.
fn date(days: u128) -> (u128, u128, u128) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day + 2) / 153;
    let day = day - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year + u128::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timestamps_are_gregorian_and_clamped() {
        let cases = [
            (0, "19700101T000000000Z"),
            (951_782_399_999, "20000228T235959999Z"),
            (951_782_400_000, "20000229T000000000Z"),
            (1_709_251_199_001, "20240229T235959001Z"),
            (1_767_225_599_000, "20251231T235959000Z"),
            (4_107_542_400_000, "21000301T000000000Z"),
            (253_402_300_799_999, "99991231T235959999Z"),
            (253_402_300_800_000, "99991231T235959999Z"),
        ];
        for (millis, shown) in cases {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(millis)), shown, "{millis}");
        }
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1)), "19700101T000000000Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut day = (1970, 1, 1);
        // An era of 400 years and what begins the next.
        for days in 0..160_000 {
            assert_eq!(date(days), day, "{days} days after 1970-01-01");
            let (year, month, last) = (day.0, day.1, day.2);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day = match (month, last) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                (_, last) => (year, month, last + 1),
            };
        }
    }
}
