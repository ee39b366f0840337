//! The types that attachments have, and the extensions that people give them.

/// One type: its names, the usual one first, its extensions, the usual one first, and what its content looks like.
pub(super) struct Row {
    pub(super) names: &'static [&'static str],
    pub(super) extensions: &'static [&'static str],
    pub(super) looks: Looks,
}

/// What can be said of the content of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// It is text.
    Text,
    /// It begins with marks of its own.
    Marked,
    /// It is in a container that other types use too, by which it may be reported.
    In(Container),
    /// It is binary, and has no mark to rely on.
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Zip,
    /// Compound files of old office programs.
    Ole,
    Ogg,
    /// ISO base media.
    Media,
    Matroska,
}

impl Row {
    /// The usual name.
    pub(super) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

const fn row(names: &'static [&'static str], extensions: &'static [&'static str], looks: Looks) -> Row {
    Row { names, extensions, looks }
}

use Container::{Matroska, Media, Ogg, Ole, Zip};
use Looks::{Binary, In, Marked, Text};

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    row(&["image/jpeg", "image/jpg"], &["jpg", "jpeg"], Marked),
    row(&["image/png"], &["png"], Marked),
    row(&["image/webp"], &["webp"], Marked),
    row(&["image/gif"], &["gif"], Marked),
    row(&["image/heic"], &["heic"], In(Media)),
    row(&["image/heif"], &["heif"], In(Media)),
    row(&["image/avif"], &["avif"], In(Media)),
    row(&["image/bmp"], &["bmp"], Marked),
    row(&["image/tiff"], &["tiff", "tif"], Marked),
    row(&["image/svg+xml"], &["svg"], Text),
    row(&["image/vnd.microsoft.icon", "image/x-icon"], &["ico"], Marked),
    row(&["audio/ogg"], &["ogg", "oga"], In(Ogg)),
    row(&["audio/opus"], &["opus"], In(Ogg)),
    row(&["audio/mpeg", "audio/mp3"], &["mp3"], Binary),
    row(&["audio/wav", "audio/x-wav"], &["wav"], Marked),
    row(&["audio/mp4", "audio/x-m4a", "audio/m4a"], &["m4a"], In(Media)),
    row(&["audio/aac"], &["aac"], Binary),
    row(&["audio/flac", "audio/x-flac"], &["flac"], Marked),
    row(&["audio/amr"], &["amr"], Marked),
    row(&["video/mp4", "video/x-m4v"], &["mp4", "m4v"], In(Media)),
    row(&["video/webm"], &["webm"], In(Matroska)),
    row(&["video/quicktime"], &["mov"], In(Media)),
    row(&["video/3gpp"], &["3gp"], In(Media)),
    row(&["video/x-matroska"], &["mkv"], In(Matroska)),
    row(&["text/plain"], &["txt", "text", "log"], Text),
    row(&["text/csv"], &["csv"], Text),
    row(&["text/html"], &["html", "htm"], Text),
    row(&["text/css"], &["css"], Text),
    row(&["text/javascript", "application/javascript"], &["js", "mjs"], Text),
    row(&["text/markdown"], &["md", "markdown"], Text),
    row(&["text/calendar"], &["ics"], Text),
    row(&["text/vcard"], &["vcf"], Text),
    row(&["text/xml", "application/xml"], &["xml"], Text),
    row(&["text/x-shellscript", "application/x-sh"], &["sh"], Text),
    row(&["application/json"], &["json"], Text),
    row(&["application/pdf"], &["pdf"], Marked),
    row(&["application/rtf", "text/rtf"], &["rtf"], Marked),
    row(&["application/zip"], &["zip"], In(Zip)),
    row(&["application/gzip"], &["gz", "tgz"], Marked),
    row(&["application/x-tar"], &["tar"], Binary),
    row(&["application/x-bzip2"], &["bz2"], Marked),
    row(&["application/x-xz"], &["xz"], Marked),
    row(&["application/zstd"], &["zst"], Marked),
    row(&["application/x-7z-compressed"], &["7z"], Marked),
    row(&["application/vnd.rar"], &["rar"], Marked),
    row(&["application/epub+zip"], &["epub"], In(Zip)),
    row(&["application/wasm"], &["wasm"], Marked),
    row(&["application/vnd.sqlite3"], &["sqlite"], Marked),
    row(&["application/x-executable"], &["elf"], Marked),
    row(&["application/vnd.microsoft.portable-executable"], &["exe", "dll"], Marked),
    row(&["application/x-ole-storage"], &["msi"], In(Ole)),
    row(&["application/msword"], &["doc"], In(Ole)),
    row(&["application/vnd.ms-excel"], &["xls"], In(Ole)),
    row(&["application/vnd.ms-powerpoint"], &["ppt"], In(Ole)),
    row(&["application/vnd.openxmlformats-officedocument.wordprocessingml.document"], &["docx"], In(Zip)),
    row(&["application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"], &["xlsx"], In(Zip)),
    row(&["application/vnd.openxmlformats-officedocument.presentationml.presentation"], &["pptx"], In(Zip)),
    row(&["application/vnd.oasis.opendocument.text"], &["odt"], In(Zip)),
    row(&["application/vnd.oasis.opendocument.spreadsheet"], &["ods"], In(Zip)),
    row(&["application/vnd.oasis.opendocument.presentation"], &["odp"], In(Zip)),
];
