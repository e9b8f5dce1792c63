//! Replays the saved inputs of every fuzz target, and each of them cut short and with bits flipped.

use std::path::Path;

/// Mutations of one saved input; enough to notice a decoder that trusts a length.
const FLIPS: usize = 64;

#[test]
fn every_saved_input_is_survived() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, target) in yonder_fuzz::TARGETS {
        let folder = corpus.join(name);
        let files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        assert!(!files.is_empty(), "{name} has no saved input");
        for file in files {
            let input = std::fs::read(&file).unwrap();
            target(&input);
            for step in 0..FLIPS {
                let at = step * input.len() / FLIPS;
                target(&input[..at]);
                let mut flipped = input.clone();
                if let Some(byte) = flipped.get_mut(at) {
                    *byte ^= 1 << (step % 8);
                    target(&flipped);
                }
            }
        }
    }
}
