//! The protocol as a model: every history of one request, two workers, crashes, dropped jobs and a client that gives up.
//!
//! Each step of a worker is one system call that others can see. After each step a worker may die or drop what it has, the guest may
//! fetch its answer or withdraw its request, or the other worker may go on. From every state that is reached, all workers die and
//! one host starts anew; then the promises must hold. Rules that were thought of first, and those of others, are caught.

use std::collections::HashSet;

/// Where the two sides are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Placement {
    /// On one mount: a claim is a rename.
    Moved,
    /// On two: a claim is a copy and an unlink.
    Copied,
    /// Copied, and the host may not unlink.
    Buried,
}

/// Who decides the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rules {
    Ours,
    /// A copy is a claim at once, and whatever is claimed may be started.
    FirstDraft,
    /// What was started is taken over once it is locked, without a second look.
    NoSecondLook,
    /// Or with a look that misses the answer.
    LookAtStateOnly,
    /// What is refused is answered as it is claimed.
    RefuseAtOnce,
    /// What is refused need not be locked.
    RefuseUnlocked,
    /// The copy is removed by whoever finds no source, and nobody is told.
    Silent,
    /// Read, handle, answer, remove; nothing is claimed.
    SystemE,
}

/// How far a worker is. What is refused is locked before, whatever it is refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pc {
    Down,
    Idle,
    /// The listing had a request.
    Claim,
    Copying(Copying),
    /// Something is claimed or started; it is to be opened, and then locked.
    Open(State),
    Lock(State),
    /// What is locked is looked at once more, if it is to be answered without being started.
    LookForAnswer(State),
    LookAtState(State),
    Start,
    Refuse,
    Run,
    Save(u16, State),
    Forget(State),
    Publish,
    PublishForget,
    /// What a recovery has seen.
    Recover(Snapshot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Copying {
    LookForDone,
    Write,
    Unlink,
    Bury,
    Rename,
    /// An interrupted one.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Copy,
    Claimed,
    Started,
    Refused,
}

impl State {
    /// What the host itself answers to what is in that state.
    fn status(self) -> u16 {
        match self {
            Self::Copy | Self::Claimed | Self::Refused => 503,
            Self::Started => 504,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Snapshot {
    copy: bool,
    claimed: bool,
    started: bool,
    refused: bool,
    answer: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    placement: Placement,
    rules: Rules,
    source: bool,
    copy: bool,
    claimed: bool,
    started: bool,
    refused: bool,
    done: bool,
    answer: Option<u16>,
    response: Option<u16>,
    /// Everything that was ever published, without repeats of the same.
    told: Vec<u16>,
    ran: u8,
    withdrawn: bool,
    copy_lock: Option<usize>,
    request_lock: Option<usize>,
    workers: [Pc; 2],
    /// How often a worker may still die.
    crashes: u8,
    /// How often a handler may still panic.
    drops: u8,
    may_withdraw: bool,
}

impl World {
    fn new(placement: Placement, rules: Rules, workers: usize, crashes: u8) -> Self {
        Self {
            placement,
            rules,
            source: true,
            copy: false,
            claimed: false,
            started: false,
            refused: false,
            done: false,
            answer: None,
            response: None,
            told: Vec::new(),
            ran: 0,
            withdrawn: false,
            copy_lock: None,
            request_lock: None,
            workers: [Pc::Idle, if workers == 2 { Pc::Idle } else { Pc::Down }],
            crashes,
            drops: 1,
            may_withdraw: true,
        }
    }

    fn with(&self, worker: usize, pc: Pc) -> Self {
        let mut next = self.clone();
        next.workers[worker] = pc;
        if pc == Pc::Idle || pc == Pc::Down {
            next.release(worker);
        }
        next
    }

    fn release(&mut self, worker: usize) {
        for lock in [&mut self.copy_lock, &mut self.request_lock] {
            lock.take_if(|holder| *holder == worker);
        }
    }

    /// The states after one step of a worker.
    fn step(&self, worker: usize) -> Vec<Self> {
        let pc = self.workers[worker];
        let go = |pc: Pc| vec![self.with(worker, pc)];
        let mut next = self.clone();
        let mut then = |change: &dyn Fn(&mut Self), pc: Pc| {
            change(&mut next);
            vec![next.with(worker, pc)]
        };
        if self.rules == Rules::SystemE {
            return match pc {
                Pc::Down => Vec::new(),
                Pc::Idle if self.source => go(Pc::Run),
                Pc::Run => then(&|w| w.ran += 1, Pc::Save(200, State::Claimed)),
                Pc::Save(..) => then(&|w| w.publish(200), Pc::Forget(State::Claimed)),
                Pc::Forget(_) => then(&|w| w.source = false, Pc::Idle),
                _ => Vec::new(),
            };
        }
        match pc {
            Pc::Down => Vec::new(),
            Pc::Idle => {
                let seen = Snapshot {
                    copy: self.copy,
                    claimed: self.claimed,
                    started: self.started,
                    refused: self.refused,
                    answer: self.answer.is_some(),
                };
                let mut next = Vec::new();
                if self.source {
                    next.push(self.with(worker, Pc::Claim));
                }
                if self.has_state() {
                    next.push(self.with(worker, Pc::Recover(seen)));
                }
                next
            }
            Pc::Claim if !self.source => go(Pc::Idle),
            Pc::Claim if self.placement == Placement::Moved => match self.claimed {
                true => then(&|w| w.source = false, Pc::Idle),
                false => then(
                    &|w| {
                        w.source = false;
                        w.claimed = true;
                    },
                    Pc::Open(State::Claimed),
                ),
            },
            // Another worker copies.
            Pc::Claim if self.copy_lock.is_some() => go(Pc::Idle),
            Pc::Claim => then(&|w| w.copy_lock = Some(worker), Pc::Copying(Copying::LookForDone)),
            Pc::Copying(copying) => self.copying(worker, copying),
            Pc::Open(State::Claimed) if self.claimed => go(Pc::Lock(State::Claimed)),
            Pc::Open(State::Started) if self.started => go(Pc::Lock(State::Started)),
            Pc::Open(State::Refused) if self.refused => go(Pc::Lock(State::Refused)),
            Pc::Open(_) => go(Pc::Idle),
            Pc::Lock(State::Claimed) if self.rules == Rules::RefuseUnlocked => {
                next.request_lock = self.request_lock.or(Some(worker));
                let locked = if self.request_lock.is_some() { Pc::Idle } else { Pc::Start };
                vec![self.with(worker, Pc::Refuse), next.with(worker, locked)]
            }
            Pc::Lock(_) if self.request_lock.is_some() => go(Pc::Idle),
            Pc::Lock(state @ (State::Started | State::Refused)) => {
                then(&|w| w.request_lock = Some(worker), Pc::LookForAnswer(state))
            }
            Pc::LookForAnswer(state) => match self.rules {
                Rules::NoSecondLook => go(Pc::Save(state.status(), state)),
                Rules::LookAtStateOnly => go(Pc::LookAtState(state)),
                _ if self.answer.is_some() => go(Pc::Idle),
                _ => go(Pc::LookAtState(state)),
            },
            Pc::LookAtState(State::Refused) if !self.refused => go(Pc::Idle),
            Pc::LookAtState(State::Started) if !self.started => go(Pc::Idle),
            Pc::LookAtState(state) => go(Pc::Save(state.status(), state)),
            Pc::Lock(_) => {
                // Whether it is started or refused is the host's decision.
                next.request_lock = Some(worker);
                vec![next.with(worker, Pc::Refuse), next.with(worker, Pc::Start)]
            }
            Pc::Refuse if self.rules == Rules::RefuseAtOnce => go(Pc::Save(403, State::Claimed)),
            Pc::Refuse if !self.claimed => go(Pc::Idle),
            Pc::Refuse if self.started => then(&|w| w.claimed = false, Pc::Idle),
            Pc::Refuse => then(
                &|w| {
                    w.claimed = false;
                    w.refused = true;
                },
                Pc::Save(403, State::Refused),
            ),
            Pc::Start if !self.claimed => go(Pc::Idle),
            Pc::Start if self.started => then(&|w| w.claimed = false, Pc::Idle),
            Pc::Start => then(
                &|w| {
                    w.claimed = false;
                    w.started = true;
                },
                Pc::Run,
            ),
            Pc::Run => then(&|w| w.ran += 1, Pc::Save(200, State::Started)),
            Pc::Save(status, from) => {
                then(&|w| w.answer = Some(w.answer.unwrap_or(status)), Pc::Forget(from))
            }
            Pc::Forget(from) => then(&|w| w.forget(from), Pc::Publish),
            Pc::Publish if self.answer.is_none() => go(Pc::Idle),
            Pc::Publish => {
                let status = self.answer.unwrap();
                match (self.response.is_some(), self.placement) {
                    (true, _) => then(&|w| w.answer = None, Pc::Idle),
                    (_, Placement::Moved) => then(
                        &|w| {
                            w.answer = None;
                            w.publish(status);
                        },
                        Pc::Idle,
                    ),
                    _ => then(&|w| w.publish(status), Pc::PublishForget),
                }
            }
            Pc::PublishForget => then(&|w| w.answer = None, Pc::Idle),
            Pc::Recover(seen) if seen.answer => match self.answer {
                None => go(Pc::Idle),
                Some(_) => then(
                    &|w| {
                        w.copy = false;
                        w.claimed = false;
                        w.refused = false;
                    },
                    Pc::Forget(State::Started),
                ),
            },
            Pc::Recover(seen) if seen.started => go(Pc::Open(State::Started)),
            Pc::Recover(seen) if seen.refused => go(Pc::Open(State::Refused)),
            Pc::Recover(seen) if seen.claimed => go(Pc::Open(State::Claimed)),
            Pc::Recover(_) if self.copy_lock.is_some() => go(Pc::Idle),
            Pc::Recover(_) => then(&|w| w.copy_lock = Some(worker), Pc::Copying(Copying::Again)),
        }
    }

    fn copying(&self, worker: usize, copying: Copying) -> Vec<Self> {
        let go = |pc: Pc| vec![self.with(worker, pc)];
        let mut next = self.clone();
        let mut then = |change: &dyn Fn(&mut Self), pc: Pc| {
            change(&mut next);
            vec![next.with(worker, pc)]
        };
        match copying {
            Copying::LookForDone if self.done => go(Pc::Idle),
            Copying::LookForDone => go(Pc::Copying(Copying::Write)),
            // Withdrawn meanwhile, or an earlier copy is there, which a recovery has to end.
            Copying::Write if !self.source || self.copy => go(Pc::Idle),
            Copying::Write if self.rules == Rules::FirstDraft && self.claimed => {
                then(&|w| w.source = false, Pc::Idle)
            }
            Copying::Write if self.rules == Rules::FirstDraft => {
                then(&|w| w.claimed = true, Pc::Copying(Copying::Unlink))
            }
            Copying::Write => then(&|w| w.copy = true, Pc::Copying(Copying::Unlink)),
            Copying::Unlink if self.placement == Placement::Buried => go(Pc::Copying(Copying::Bury)),
            Copying::Unlink if self.rules == Rules::FirstDraft => {
                then(&|w| w.source = false, Pc::Open(State::Claimed))
            }
            Copying::Unlink if !self.source => then(&|w| w.copy = false, Pc::Idle),
            Copying::Unlink => then(&|w| w.source = false, Pc::Copying(Copying::Rename)),
            Copying::Bury => then(&|w| w.done = true, Pc::Copying(Copying::Rename)),
            Copying::Rename if self.claimed => then(&|w| w.copy = false, Pc::Idle),
            Copying::Rename => {
                next.copy = false;
                next.claimed = true;
                next.copy_lock = None;
                vec![next.with(worker, Pc::Open(State::Claimed))]
            }
            Copying::Again if !self.copy => go(Pc::Idle),
            Copying::Again if self.done => go(Pc::Copying(Copying::Rename)),
            Copying::Again if self.source => go(Pc::Copying(Copying::Unlink)),
            Copying::Again if self.rules == Rules::Silent => then(&|w| w.copy = false, Pc::Idle),
            Copying::Again => go(Pc::Save(503, State::Copy)),
        }
    }

    fn forget(&mut self, state: State) {
        match state {
            State::Copy => self.copy = false,
            State::Claimed => self.claimed = false,
            State::Started => self.started = false,
            State::Refused => self.refused = false,
        }
    }

    fn publish(&mut self, status: u16) {
        if self.response.is_none() {
            self.response = Some(status);
            if self.told.last() != Some(&status) {
                self.told.push(status);
            }
        }
    }

    /// The states after one step of anybody.
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        for worker in 0..2 {
            next.extend(self.step(worker));
            if self.workers[worker] == Pc::Down {
                continue;
            }
            if self.crashes > 0 {
                let mut dead = self.with(worker, Pc::Down);
                dead.crashes -= 1;
                // The service is started anew at once; what it finds is what counts.
                dead.workers[worker] = Pc::Idle;
                next.push(dead);
            }
            // A handler that panics drops what it has, and nothing else ends.
            if self.drops > 0
                && matches!(
                    self.workers[worker],
                    Pc::Start | Pc::Run | Pc::Save(_, State::Started | State::Refused)
                )
            {
                let mut dropped = self.with(worker, Pc::Idle);
                dropped.drops -= 1;
                next.push(dropped);
            }
        }
        if self.response.is_some() {
            next.push(Self { response: None, ..self.clone() });
        }
        if self.source && self.may_withdraw && !self.withdrawn {
            next.push(Self { source: false, withdrawn: true, ..self.clone() });
        }
        next
    }

    /// All workers die, and one host starts and works until there is nothing to do.
    fn settled(&self) -> Result<Self, String> {
        let mut world = self.with(0, Pc::Idle).with(1, Pc::Down);
        (world.copy_lock, world.request_lock) = (None, None);
        for _ in 0..200 {
            // A host recovers before it polls; the last of the choices is to recover, and to start.
            let Some(step) = world.step(0).pop() else { return Ok(world) };
            if step == world || (world.workers[0] == Pc::Idle && world.done && !step.has_state()) {
                return Ok(world);
            }
            world = step;
        }
        Err("does not settle".into())
    }

    fn has_state(&self) -> bool {
        self.copy || self.claimed || self.started || self.refused || self.answer.is_some()
    }

    /// What does not hold, if anything.
    fn violation(&self) -> Option<String> {
        if self.ran > 1 {
            return Some(format!("the handler ran {} times", self.ran));
        }
        if self.withdrawn && self.ran > 0 && self.placement != Placement::Buried {
            return Some("the handler ran for a request that was withdrawn".into());
        }
        let settled = match self.settled() {
            Ok(settled) => settled,
            Err(why) => return Some(why),
        };
        if settled.ran > 1 {
            return Some("the handler runs again after a restart".into());
        }
        if settled.has_state() {
            return Some("something is left on the host's side".into());
        }
        match (settled.told.as_slice(), settled.ran) {
            ([200 | 504], 1) | ([403 | 503 | 504], 0) => None,
            ([], 0) if settled.withdrawn => None,
            (told, ran) => Some(format!("told {told:?} after {ran} runs")),
        }
    }
}

/// How many states there are, and what does not hold in the first that is wrong.
fn explore(first: World) -> (usize, Option<String>) {
    let mut seen = HashSet::from([first.clone()]);
    let mut next = vec![first];
    while let Some(world) = next.pop() {
        if let Some(violation) = world.violation() {
            return (seen.len(), Some(format!("{violation}: {world:?}")));
        }
        for world in world.next() {
            if seen.insert(world.clone()) {
                next.push(world);
            }
        }
    }
    (seen.len(), None)
}

#[test]
fn every_history_ends_with_one_answer_and_at_most_one_run() {
    for placement in [Placement::Moved, Placement::Copied, Placement::Buried] {
        for (workers, crashes) in [(1, 3), (2, 3)] {
            let (states, violation) = explore(World::new(placement, Rules::Ours, workers, crashes));
            println!("{placement:?}, {workers} workers, {crashes} crashes: {states} states");
            assert_eq!(violation, None, "{placement:?}");
            assert!(states > 100, "{states}");
        }
    }
}

#[test]
fn rules_that_are_wrong_are_caught() {
    let twice = "the handler runs again";
    let controls = [
        (Rules::FirstDraft, Placement::Copied, 1, 1, twice),
        (Rules::SystemE, Placement::Moved, 1, 1, twice),
        (Rules::Silent, Placement::Copied, 1, 1, "told []"),
        (Rules::NoSecondLook, Placement::Moved, 2, 0, "told [200, 504]"),
        (Rules::LookAtStateOnly, Placement::Moved, 2, 1, "told ["),
        (Rules::RefuseAtOnce, Placement::Moved, 2, 1, "told ["),
        (Rules::RefuseUnlocked, Placement::Moved, 2, 0, "told ["),
    ];
    for (rules, placement, workers, crashes, words) in controls {
        let first = World { may_withdraw: false, ..World::new(placement, rules, workers, crashes) };
        let (states, violation) = explore(first);
        println!("{rules:?}: {states} states, {violation:?}");
        assert!(violation.is_some_and(|violation| violation.starts_with(words)), "{rules:?} is not caught");
    }
}
