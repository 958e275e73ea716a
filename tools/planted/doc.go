// Planted checks that the tests detect bugs. It plants one bug at a time in a copy
// of the repository and runs the test that must fail because of it.
//
// A bug is killed when that test fails. It survived when the test passes: a test
// is missing. It is broken when its patch does not fit the source, the result does
// not compile, there is no such test, or the test fails without the bug too.
//
//	go -C tools run ./planted                        run all bugs
//	go -C tools run ./planted -only vote-not-synced  run these, comma-separated
//	go -C tools run ./planted -list                  print the bugs
//	go -C tools run ./planted -update                rewrite the patches in the names of today
//	go -C tools run ./planted -find vote-not-synced  search for a test that kills the bug
//	go -C tools test ./planted                       check that each bug fits the source
//
// The copy is of the working tree, with what is not committed. The exit status is
// 1 unless all bugs were killed (-update: fit; -find: killed by some test).
//
// # Patches
//
// A bug is a file bugs/AREA/NAME.patch: the mistake in one line, the file it is
// in, the test that kills it (package, -run pattern, arguments), and a diff.
//
//	a vote in a known term is not durable before it is sent
//	at: raftlog/write.go
//	test: ./raftlog TestAVoteIsDurable
//
//	 	term, vote := w.hard.GetTerm(), w.hard.GetVote()
//	-	if hard.GetTerm() != term || hard.GetVote() != vote {
//	+	if hard.GetTerm() != term {
//	 		w.sync, w.vow = true, true
//	 	}
//
// Everything from the first changed line to the last is one replacement. At least
// one line begins with -; an insertion repeats a line beside it as - and as +.
//
// # Matching
//
// A patch need not quote the source. Both are compared as sequences of tokens, so
// that comments and layout do not matter. The replaced tokens must occur in a
// declaration of any file as a whole: operators, keywords and numbers as they are,
// names with a one-to-one renaming, string literals with any text. Of the places
// where they do, the context decides: it is aligned with the declaration, tokens
// near the change count most, the same name counts more than another, and lines
// that were added, removed or changed cost little. The file that the patch names
// only decides between equals. A place that scores too low, or two that score
// alike, do not fit, and the closest are printed. Where the replaced lines occur
// nowhere because something around the change was rewritten in them, the tokens
// that change are searched alone.
//
// The alignment also shows what the names of the patch are called today, and the
// replacement is rewritten so. A name that occurs in the replacement only is known
// from other patches; if not, the bug does not fit.
//
// # Refitting
//
// After a refactoring:
//
//  1. Run -update and read the diff of bugs/. It follows renames and moves of
//     code, and renames and moves of tests and scripts since the commit that last
//     wrote a patch, so commit the patches before the next step. Check those it
//     reports as moved or to be checked: a sibling of code that is gone may be
//     taken for it.
//  2. For each bug that does not fit, edit its patch: write the changed lines as
//     the source has them today, in one of the declarations listed. The context
//     may be stale, short or absent where the changed lines are unique. Run
//     -update to complete it.
//  3. For each test that is not found, write its name into the patch, or run -find
//     NAME -update, which tries the tests of the package and of those that
//     import it. The packages' whole tests run, so give it a -timeout.
//  4. Run all bugs. "does not compile" is a replacement to edit as in step 2. A
//     survivor is a bug at a wrong place, a wrong test, or a missing test.
//
// A bug is deleted only with the code that it is in, or with the promise that it
// breaks. A new promise comes with a bug that breaks it: a new patch, with the
// changed lines only, and -update.
package main
