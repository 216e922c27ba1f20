//! Profile of callgrind: the work of each stage.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::stage::{OTHER, is_of_allocator, stage};

/// Work of a stage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) instructions: f64,
    /// Number of times that memory was allocated, or grew.
    pub(super) allocations: f64,
}

impl Work {
    fn add(&mut self, other: Self, share: f64) {
        self.instructions += other.instructions * share;
        self.allocations += other.allocations * share;
    }
}

/// Number of rounds in which work moves from functions to their callers. The work of circles is [`OTHER`] after them.
const ROUNDS: usize = 60;

/// A function with its own work and its callers.
#[derive(Debug, Default)]
struct Function {
    stage: Option<&'static str>,
    own: Work,
    /// Instructions on behalf of each caller, with those of everything called.
    callers: HashMap<usize, f64>,
}

/// Returns the work of each stage in a profile that has no abbreviated names and positions.
///
/// The format is that of the manual of Valgrind, "Callgrind Format Specification": a line of costs belongs to the function
/// of the last `fn=`, and the one after `calls=` to the call.
pub(super) fn read(path: &Path) -> BTreeMap<&'static str, Work> {
    let text = std::fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&text);
    let mut functions = Functions::default();
    let (mut object, mut called_object, mut current, mut called) = ("", None, 0, 0);
    let mut calls: Option<f64> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name;
        } else if let Some(name) = line.strip_prefix("cob=") {
            called_object = Some(name);
        } else if let Some(name) = line.strip_prefix("fn=") {
            current = functions.number(object, name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = functions.number(called_object.take().unwrap_or(object), name);
        } else if let Some(count) = line.strip_prefix("calls=") {
            calls = count.split(' ').next().map(|count| count.parse().unwrap());
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost: f64 = line.split(' ').nth(1).unwrap().parse().unwrap();
            match calls.take() {
                Some(count) => functions.call(current, called, count, cost),
                None => functions.all[current].own.instructions += cost,
            }
        }
    }
    functions.by_stage()
}

#[derive(Default)]
struct Functions {
    numbers: HashMap<String, usize>,
    all: Vec<Function>,
    /// For each function, whether it allocates memory.
    allocates: Vec<bool>,
    /// For each function, whether it belongs to an allocator.
    of_allocator: Vec<bool>,
}

impl Functions {
    fn number(&mut self, object: &str, name: &str) -> usize {
        let key = format!("{object} {name}");
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let is_program = object.ends_with("tidings");
        let of_allocator = if is_program { is_of_allocator(name) } else { name.contains("alloc") };
        let stage = if is_program { stage(name) } else { None };
        self.allocates.push(of_allocator && name.contains("alloc"));
        self.of_allocator.push(of_allocator);
        self.all.push(Function { stage, ..Function::default() });
        self.numbers.insert(key, self.all.len() - 1);
        self.all.len() - 1
    }

    fn call(&mut self, caller: usize, called: usize, count: f64, cost: f64) {
        if self.allocates[called] && !self.of_allocator[caller] {
            self.all[caller].own.allocations += count;
        }
        if caller != called {
            *self.all[called].callers.entry(caller).or_default() += cost;
        }
    }

    /// Moves the work of functions without a stage to their callers, in proportion to the instructions for each.
    fn by_stage(mut self) -> BTreeMap<&'static str, Work> {
        let mut stages: BTreeMap<&'static str, Work> = BTreeMap::new();
        for _ in 0..ROUNDS {
            for number in 0..self.all.len() {
                let function = &mut self.all[number];
                let work = std::mem::take(&mut function.own);
                if work.instructions == 0.0 && work.allocations == 0.0 {
                    continue;
                }
                if let Some(stage) = function.stage {
                    stages.entry(stage).or_default().add(work, 1.0);
                    continue;
                }
                let callers = function.callers.clone();
                let total: f64 = callers.values().sum();
                if total == 0.0 {
                    stages.entry(OTHER).or_default().add(work, 1.0);
                }
                for (caller, cost) in callers {
                    self.all[caller].own.add(work, cost / total);
                }
            }
        }
        let left = self.all.iter().map(|function| function.own);
        left.for_each(|work| stages.entry(OTHER).or_default().add(work, 1.0));
        stages
    }
}
