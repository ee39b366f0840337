//! The protocol of claims as a small machine, searched through: every order of the host's steps, its deaths, its failed
//! reads and the guest's moves.
//!
//! What it holds of the disk and in which steps the host changes it is the table at the head of `outbox/shelf.rs`; the real steps are
//! killed one by one in `session_kill`. One id is enough, since a guest that uses it again and again is the hardest.

use std::collections::{BTreeMap, BTreeSet, HashSet};

type Ticket = u8;
type Message = u8;

/// What a claim's directory holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Empty,
    Note,
    Message(Message),
}

/// What the host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    Next,
    Move(Ticket),
    Rename(Ticket),
    Ask(Ticket),
    Send(Ticket),
    Record(Ticket),
    Clear(Ticket),
    Remove(Ticket),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Moved,
    InPlace,
}

/// Ways to get it wrong; the search must find what each of them loses or repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The claim is named by the id.
    TicketIsId,
    /// A read that failed for want of descriptors counts as a message without files.
    FailureIsOutcome,
    /// The message is removed before the ledger has it.
    ClearedFirst,
    /// In place: the note is written after the message has left its name.
    NotedLate,
    /// In place: a note is forgotten although the outbox is not the one that it was written for.
    ForgottenWhileAway,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    outbox: Option<Message>,
    aside: BTreeMap<Ticket, Message>,
    /// It cannot be looked into, is not mounted, or is another one for now.
    closed: bool,
    shelf: BTreeMap<Ticket, Slot>,
    ledger: BTreeSet<Ticket>,
    step: Step,
    /// What the host has in memory, if it keeps anything there.
    read: Option<Message>,
    pending: Vec<Ticket>,
    has_claimed: bool,
    /// How often each message was sent, and how often it may be: a guest that takes one back has sent it again.
    sent: Vec<u8>,
    allowed: Vec<u8>,
    /// What the guest has removed itself.
    removed: BTreeSet<Message>,
    tickets: Ticket,
    moves_left: u8,
    deaths_left: u8,
    failures_left: u8,
}

#[derive(Clone, Copy, Debug)]
struct Rules {
    place: Place,
    flaw: Flaw,
    /// Whether sending and recording are one step.
    atomic: bool,
}

impl World {
    fn new(place: Place) -> Self {
        Self {
            outbox: None,
            aside: BTreeMap::new(),
            closed: false,
            shelf: BTreeMap::new(),
            ledger: BTreeSet::new(),
            step: Step::Idle,
            read: None,
            pending: Vec::new(),
            has_claimed: false,
            sent: Vec::new(),
            allowed: Vec::new(),
            removed: BTreeSet::new(),
            tickets: 0,
            // In place the guest has more to choose from.
            moves_left: if place == Place::Moved { 4 } else { 3 },
            deaths_left: 2,
            failures_left: 1,
        }
    }

    /// The next step of a host that nothing goes wrong with.
    fn host(mut self, rules: Rules) -> Self {
        self.step = match self.step {
            Step::Idle => {
                self.pending = self.shelf.keys().copied().collect();
                self.has_claimed = false;
                Step::Next
            }
            Step::Next if !self.pending.is_empty() => {
                let ticket = self.pending.remove(0);
                self.load(ticket, rules)
            }
            Step::Next if !self.has_claimed && self.outbox.is_some() && !self.closed => self.begin(rules),
            Step::Next => Step::Idle,
            Step::Move(ticket) => self.take(ticket, rules),
            Step::Rename(ticket) if rules.flaw == Flaw::NotedLate => {
                self.shelf.insert(ticket, Slot::Note);
                Step::Ask(ticket)
            }
            Step::Rename(ticket) => match self.outbox {
                Some(message) if !self.closed => {
                    self.outbox = None;
                    self.aside.insert(ticket, message);
                    Step::Ask(ticket)
                }
                _ => self.give_up(ticket),
            },
            Step::Ask(ticket) if self.ledger.contains(&ticket) => Step::Clear(ticket),
            Step::Ask(ticket) if rules.flaw == Flaw::ClearedFirst => {
                let slot = self.shelf.remove(&ticket);
                // The host has the content in memory, and sends it next.
                self.read = match slot {
                    Some(Slot::Message(message)) => Some(message),
                    _ => self.aside.get(&ticket).copied(),
                };
                Step::Send(ticket)
            }
            Step::Ask(ticket) => Step::Send(ticket),
            Step::Send(ticket) => {
                let held = match self.shelf.get(&ticket) {
                    Some(Slot::Message(message)) => Some(*message),
                    _ => self.read.take().or(self.aside.get(&ticket).copied()),
                };
                if let Some(message) = held {
                    self.sent[usize::from(message)] += 1;
                }
                if rules.atomic {
                    self.ledger.insert(ticket);
                    Step::Clear(ticket)
                } else {
                    Step::Record(ticket)
                }
            }
            Step::Record(ticket) => {
                self.ledger.insert(ticket);
                Step::Clear(ticket)
            }
            Step::Clear(ticket) => {
                self.shelf.remove(&ticket);
                Step::Remove(ticket)
            }
            Step::Remove(ticket) => {
                self.aside.remove(&ticket);
                Step::Next
            }
        };
        self
    }

    /// A minute has always passed.
    fn load(&mut self, ticket: Ticket, rules: Rules) -> Step {
        let is_away = self.closed && rules.flaw != Flaw::ForgottenWhileAway;
        match self.shelf.get(&ticket) {
            Some(Slot::Message(_)) => Step::Ask(ticket),
            Some(Slot::Note) if self.aside.contains_key(&ticket) && !self.closed => Step::Ask(ticket),
            Some(Slot::Note) if is_away => Step::Next,
            Some(Slot::Note | Slot::Empty) => self.give_up(ticket),
            None => Step::Next,
        }
    }

    fn begin(&mut self, rules: Rules) -> Step {
        self.has_claimed = true;
        if rules.flaw == Flaw::TicketIsId {
            // The name is taken: the error ends the turn.
            return if self.shelf.contains_key(&0) { Step::Idle } else { self.make(0) };
        }
        self.tickets += 1;
        self.make(self.tickets)
    }

    fn make(&mut self, ticket: Ticket) -> Step {
        self.shelf.insert(ticket, Slot::Empty);
        Step::Move(ticket)
    }

    fn take(&mut self, ticket: Ticket, rules: Rules) -> Step {
        match (rules.place, self.outbox) {
            (Place::InPlace, Some(message)) if rules.flaw == Flaw::NotedLate && !self.closed => {
                self.outbox = None;
                self.aside.insert(ticket, message);
                Step::Rename(ticket)
            }
            (Place::InPlace, _) => {
                self.shelf.insert(ticket, Slot::Note);
                Step::Rename(ticket)
            }
            (Place::Moved, Some(message)) if !self.closed => {
                self.outbox = None;
                self.shelf.insert(ticket, Slot::Message(message));
                Step::Ask(ticket)
            }
            (Place::Moved, _) => self.give_up(ticket),
        }
    }

    fn give_up(&mut self, ticket: Ticket) -> Step {
        self.shelf.remove(&ticket);
        Step::Next
    }

    /// Everything that can happen next.
    fn successors(&self, rules: Rules) -> Vec<Self> {
        let mut next = vec![self.clone().host(rules)];
        if self.deaths_left > 0 && self.step != Step::Idle {
            next.push(Self {
                step: Step::Idle,
                read: None,
                deaths_left: self.deaths_left - 1,
                ..self.clone()
            });
        }
        if let Step::Send(ticket) = self.step
            && self.failures_left > 0
        {
            let step = if rules.flaw == Flaw::FailureIsOutcome { Step::Record(ticket) } else { Step::Next };
            next.push(Self { step, failures_left: self.failures_left - 1, ..self.clone() });
        }
        if self.moves_left > 0 {
            next.extend(self.guest());
        }
        next
    }

    fn guest(&self) -> Vec<Self> {
        let before = Self { moves_left: self.moves_left - 1, ..self.clone() };
        let mut next = vec![Self { closed: !self.closed, ..before.clone() }];
        match self.outbox {
            None => {
                let mut sent = before.clone();
                sent.outbox = Some(Message::try_from(sent.sent.len()).unwrap());
                sent.sent.push(0);
                sent.allowed.push(1);
                next.push(sent);
            }
            Some(message) => {
                let mut removed = Self { outbox: None, ..before.clone() };
                removed.removed.insert(message);
                next.push(removed);
            }
        }
        for (ticket, message) in &self.aside {
            let mut taken = before.clone();
            taken.aside.remove(ticket);
            let mut removed = taken.clone();
            removed.removed.insert(*message);
            next.push(removed);
            if self.outbox.is_none() {
                taken.outbox = Some(*message);
                taken.allowed[usize::from(*message)] += 1;
                next.push(taken);
            }
        }
        next
    }

    /// What is wrong once nothing disturbs the host any more.
    fn verdict(&self, rules: Rules) -> Option<String> {
        let mut world = Self { closed: false, step: Step::Idle, ..self.clone() };
        for _ in 0..4 {
            world = world.host(rules);
            while world.step != Step::Idle {
                world = world.host(rules);
            }
        }
        for (message, (sent, allowed)) in world.sent.iter().zip(&world.allowed).enumerate() {
            let excused = world.removed.contains(&Message::try_from(message).unwrap());
            // Without one step for both, each death may come between sending and recording.
            let most = if rules.atomic { *allowed } else { *allowed + (2 - world.deaths_left) };
            if *sent == 0 && !excused {
                return Some(format!("message {message} was lost: {world:?}"));
            }
            if *sent > most {
                return Some(format!("message {message} was sent {sent} times: {world:?}"));
            }
        }
        let rest = world.outbox.is_some() || !world.shelf.is_empty();
        rest.then(|| format!("something is left: {world:?}"))
    }
}

/// How many worlds were reached, and the first that ends badly.
fn search(rules: Rules) -> (usize, Option<String>) {
    let mut seen: HashSet<World> = HashSet::new();
    let mut open = vec![World::new(rules.place)];
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        if world.step == Step::Idle
            && let Some(wrong) = world.verdict(rules)
        {
            return (seen.len(), Some(wrong));
        }
        open.extend(world.successors(rules));
    }
    (seen.len(), None)
}

#[test]
fn no_order_of_steps_deaths_and_moves_loses_a_message_or_sends_it_twice() {
    for place in [Place::Moved, Place::InPlace] {
        for atomic in [true, false] {
            let (worlds, wrong) = search(Rules { place, flaw: Flaw::None, atomic });
            println!("{place:?}, sending and recording in one step {atomic}: {worlds} worlds");
            assert!(worlds > 10_000, "{worlds}");
            assert_eq!(wrong, None);
        }
    }
}

#[test]
fn the_search_catches_each_flaw() {
    for (flaw, place) in [
        (Flaw::TicketIsId, Place::Moved),
        (Flaw::TicketIsId, Place::InPlace),
        (Flaw::FailureIsOutcome, Place::Moved),
        (Flaw::ClearedFirst, Place::Moved),
        (Flaw::NotedLate, Place::InPlace),
        (Flaw::ForgottenWhileAway, Place::InPlace),
    ] {
        let (worlds, wrong) = search(Rules { place, flaw, atomic: true });
        println!("{flaw:?}: {worlds} worlds, {wrong:?}");
        assert!(wrong.is_some(), "{flaw:?}");
    }
}
