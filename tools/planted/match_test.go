package main

import (
	"strings"
	"testing"
)

const votePatch = `a vote is not synced
at: raftlog/write.go
test: ./raftlog TestVote

 func (w *writer) setVote(hard *State) error {
 	term, vote := w.hard.Term(), w.hard.Vote()
-	if hard.Term() != term || hard.Vote() != vote {
+	if hard.Term() != term {
 		w.sync = true
 	}
 	w.hard = hard
 	return w.setMessage(kindHard, w.hard)
 }
`

const voteSource = `package raftlog

func (w *writer) setVote(hard *State) error {
	term, vote := w.hard.Term(), w.hard.Vote()
	if hard.Term() != term || hard.Vote() != vote {
		w.sync = true
	}
	w.hard = hard
	return w.setMessage(kindHard, w.hard)
}

func (w *writer) other(n int) bool { return n != 1 || n != 2 }
`

func sourceOf(t *testing.T, files ...string) *source {
	t.Helper()
	s := &source{files: make(map[string]string), names: make(map[string]bool)}
	for i := 0; i < len(files); i += 2 {
		if err := s.add(files[i], files[i+1], true); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func patchOf(t *testing.T, name, patch string) bug {
	t.Helper()
	b, err := parseBug(patch)
	if err != nil {
		t.Fatal(err)
	}
	b.name = name
	return b
}

func TestMatch_Fits(t *testing.T) {
	for name, test := range map[string]struct {
		file, source string
		patch        string // votePatch, unless set
		want         string // a line with the bug
	}{
		"as quoted":     {file: "raftlog/write.go", source: voteSource, want: "if hard.Term() != term {"},
		"moved file":    {file: "raftlog/vote.go", source: voteSource, want: "if hard.Term() != term {"},
		"moved package": {file: "cluster/vote.go", source: strings.Replace(voteSource, "package raftlog", "package cluster", 1), want: "if hard.Term() != term {"},
		"renamed": {file: "raftlog/write.go", source: strings.NewReplacer(
			"w ", "b ", "w.", "b.", "writer", "batch", "setVote", "persist", "hard ", "state ", "hard.", "state.", "Vote()", "Choice()", "sync", "durable",
		).Replace(voteSource), want: "if state.Term() != term {"},
		"one name becomes two": {file: "raftlog/write.go", source: strings.ReplaceAll(voteSource, "w.hard", "w.last"), want: "if hard.Term() != term {"},
		"reformatted": {file: "raftlog/write.go", source: strings.Replace(voteSource, "hard.Term() != term || hard.Vote() != vote",
			"hard.Term() != term ||\n\t\thard.Vote() != vote", 1), want: "if hard.Term() != term {"},
		"comments changed": {file: "raftlog/write.go", source: strings.NewReplacer("func (w *writer) setVote", "// New.\nfunc (w *writer) setVote",
			"if hard", "// Why.\n\tif hard", "|| hard", "|| /* or */ hard").Replace(voteSource), want: "if hard.Term() != term {"},
		"statements added and removed": {file: "raftlog/write.go", source: strings.NewReplacer("\tw.hard = hard\n", "",
			"\t\tw.sync = true\n", "\t\tw.log(term)\n\t\tw.sync = true\n").Replace(voteSource), want: "if hard.Term() != term {"},
		"changed lines only": {file: "raftlog/write.go", source: voteSource,
			patch: "x\nat: y.go\ntest: . T\n\n-\tif hard.Term() != term || hard.Vote() != vote {\n+\tif hard.Term() != term {\n", want: "if hard.Term() != term {"},
		"changed lines rewritten around the change": {file: "a.go", source: "package a\n\nfunc f(l *lock, limit int) bool {\n\tif !l.free() {\n\t\treturn false\n\t}\n\treturn l.holds.count() >= limit\n}\n",
			patch: "x\nat: a.go\ntest: . T\n\n func f(l *lock, limit int) bool {\n \tif !l.free() {\n \t\treturn false\n \t}\n-\treturn l.holds >= limit\n+\treturn l.holds > limit\n }\n", want: "\treturn l.holds.count() > limit"},
		"message reworded": {file: "a.go", source: "package a\n\nfunc f(b bool) error {\n\tif b {\n\t\treturn errors.New(\"invalid state\")\n\t}\n\treturn nil\n}\n",
			patch: "x\nat: a.go\ntest: . T\n\n func f(b bool) error {\n \tif b {\n-\t\treturn errors.New(\"bad\")\n+\t\treturn nil\n \t}\n \treturn nil\n }\n", want: "\treturn nil"},
		"last field of a literal": {file: "a.go", source: "package a\n\nvar x = T{\n\ta: 2,\n\tb: f,\n}\n",
			patch: "x\nat: a.go\ntest: . T\n\n var x = T{\n-\tb: f,\n+\tb: nil,\n \ta: 2,\n }\n", want: "\tb: nil,"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.patch == "" {
				test.patch = votePatch
			}
			matched := match(sourceOf(t, test.file, test.source), []bug{patchOf(t, "bug", test.patch)})
			if err := matched.faults["bug"]; err != nil {
				t.Fatal(err)
			}
			p := matched.found["bug"]
			if p.file != test.file {
				t.Errorf("found in %s", p.file)
			}
			if !strings.Contains(p.changed, test.want+"\n") || strings.Contains(test.source, test.want+"\n") && strings.Count(p.changed, test.want) < 2 {
				t.Errorf("the bug is not planted:\n%s", p.changed)
			}
			// The rewritten patch plants the same bug.
			again := match(sourceOf(t, test.file, test.source), []bug{patchOf(t, "bug", p.format())})
			if now := again.found["bug"]; now.changed != p.changed || now.format() != p.format() {
				t.Errorf("the rewritten patch differs: %v\n%s", again.faults["bug"], p.format())
			}
		})
	}
}

func TestMatch_DoesNotFit(t *testing.T) {
	twice := strings.Replace(voteSource, "func (w *writer) other", strings.TrimPrefix(
		strings.Replace(voteSource[:strings.Index(voteSource, "func (w *writer) other")], "setVote", "setVoteToo", 1), "package raftlog\n")+"func (w *writer) other", 1)
	for name, test := range map[string]struct {
		source, patch, want string
	}{
		"vanished":         {strings.Replace(voteSource, " || hard.Vote() != vote", "", 1), votePatch, "occurs nowhere"},
		"another operator": {strings.Replace(voteSource, "hard.Vote() != vote", "hard.Vote() == vote", 1), votePatch, "occurs nowhere"},
		"names not one-one": {strings.Replace(voteSource, "hard.Vote() != vote {", "hard.Vote() != term {", 1),
			strings.Replace(votePatch, "+\tif hard.Term() != term {", "+\tif true {", 1), "occurs nowhere"},
		"no context in common": {"package raftlog\n\nfunc f() {\n\tfor a.B() {\n\t\tgo b()\n\t}\n}\n",
			"x\nat: b.go\ntest: . T\n\n func g(x []int) int {\n \ty := x[len(x)-1]\n-\tc.d()\n+\tc.e()\n \tif y > 0 {\n \t\treturn 1\n \t}\n \treturn 0\n }\n", "no place is like it"},
		"ambiguous": {twice, strings.Replace(votePatch, "setVote", "setAnything", 1), "more than one place"},
		"unknown name in the replacement": {voteSource, strings.Replace(votePatch, "+\tif hard.Term() != term {", "+\tif hard.Gone() {", 1),
			"names that the source lacks: Gone"},
	} {
		t.Run(name, func(t *testing.T) {
			matched := match(sourceOf(t, "raftlog/write.go", test.source), []bug{patchOf(t, "bug", test.patch)})
			err := matched.faults["bug"]
			if err == nil {
				t.Fatalf("it fits:\n%s", matched.found["bug"].changed)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
}

// A name that one patch has in its replacement only is known from another.
func TestMatch_NameKnownFromAnotherPatch(t *testing.T) {
	const text = "package a\n\nfunc f() {\n\tc.recheck()\n\tc.done()\n}\n\nfunc g() {\n\tfor {\n\t\tc.retry(1)\n\t}\n}\n"
	matched := match(sourceOf(t, "a.go", text), []bug{
		patchOf(t, "one", "x\nat: a.go\ntest: . T\n\n func f() {\n-\tc.recheck()\n+\tc.resend()\n \tc.done()\n }\n"),
		patchOf(t, "two", "x\nat: a.go\ntest: . T\n\n func g() {\n \tfor {\n-\t\tc.resend(1)\n+\t\tc.resend(2)\n \t}\n }\n"),
	})
	if err := matched.faults["one"]; err != nil {
		t.Fatal(err)
	}
	if p := matched.found["one"]; !strings.Contains(p.changed, "\tc.retry()\n") {
		t.Errorf("planted:\n%s", p.changed)
	}
}

func TestParseBug_Invalid(t *testing.T) {
	const head = "x\nat: a.go\ntest: . T\n\n"
	for name, patch := range map[string]string{
		"no body":          "x\nat: a.go\n",
		"no change":        head + " a()\n",
		"insertion only":   head + " a()\n+b()\n",
		"no mark":          head + " a()\nb()\n-c()\n",
		"no test":          "x\nat: a.go\ntest: .\n\n-a()\n",
		"unknown key":      "x\nin: a.go\n\n-a()\n",
		"nothing replaced": head + "-\n+a()\n",
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := parseBug(patch); err == nil {
				t.Errorf("parsed: %+v", b)
			}
		})
	}
}
