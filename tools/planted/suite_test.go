package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSuite_FollowsRenamedTests(t *testing.T) {
	const old = "package a\n\nimport \"testing\"\n\n" +
		"func TestTheVoteIsKept(t *testing.T) {\n\tw := open(t)\n\tw.vote(7)\n\tif got := reopen(t).vote(); got != 7 {\n\t\tt.Errorf(\"%d\", got)\n\t}\n}\n\n" +
		"func TestStays(t *testing.T) {\n\tw := open(t)\n\tw.vote(7)\n\tif got := reopen(t).vote(); got != 7 {\n\t\tt.Errorf(\"%d\", got)\n\t}\n}\n\n" +
		"func TestScripts(t *testing.T) {}\n"
	root := t.TempDir()
	commit := func(message string, files map[string]string) {
		t.Helper()
		for name, text := range files {
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", message}} {
			if _, err := git(root, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := git(root, "init", "-q"); err != nil {
		t.Fatal(err)
	}
	script := strings.Repeat("lock x\nunlock x\n", 10)
	commit("old", map[string]string{"a/a_test.go": old, "a/testdata/handon.txt": script, patches + "/x.patch": "x\n"})
	if err := os.RemoveAll(filepath.Join(root, "a/testdata")); err != nil {
		t.Fatal(err)
	}
	commit("new", map[string]string{
		"a/a_test.go":           strings.Replace(old[:strings.Index(old, "func TestTheVote")]+old[strings.Index(old, "func TestStays"):], "TestScripts", "TestMachine_Scripts", 1),
		"b/b_test.go":           strings.Replace(strings.Replace(old[:strings.Index(old, "func TestStays")], "package a", "package b", 1), "TestTheVoteIsKept", "TestVote_Durable", 1),
		"a/testdata/grant.txt":  script,
		"a/testdata/unlike.txt": "check\n",
	})
	files, err := goFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	now, err := loadSuite(root, files)
	if err != nil {
		t.Fatal(err)
	}
	h := &history{root, now, make(map[string]*suite)}
	for _, test := range []struct{ was, now test }{
		{test{pkg: "./a", run: "TestTheVoteIsKept"}, test{pkg: "./b", run: "TestVote_Durable"}},
		{test{pkg: "./a", run: "TestScripts/handon"}, test{pkg: "./a", run: "TestMachine_Scripts/grant"}},
		{test{pkg: "./a", run: "TestStays"}, test{pkg: "./a", run: "TestStays"}},
	} {
		got, err := h.rename(&bug{path: patches + "/x.patch", test: test.was})
		if err != nil || got.String() != test.now.String() {
			t.Errorf("%s is called %s, %v; want %s", test.was, got, err, test.now)
		}
	}
	if got, err := h.rename(&bug{path: patches + "/x.patch", test: test{pkg: "./a", run: "TestNever"}}); err == nil {
		t.Errorf("a test that never was is called %s", got)
	}
}

func TestFind_FailedTest(t *testing.T) {
	for name, test := range map[string]struct{ out, want string }{
		"test":    {"--- FAIL: TestX (0.00s)\n    x_test.go:7: 1, not 2\nFAIL\n", "TestX"},
		"subtest": {"--- FAIL: TestX (0.00s)\n    --- FAIL: TestX/a_b (0.00s)\n        x_test.go:7: 1, not 2\nFAIL\n", "TestX/a_b"},
		"timeout": {"panic: test timed out after 1m0s\n\trunning tests:\n\t\tTestX (1m0s)\n\ngoroutine 1:\n", "TestX"},
		"none":    {"FAIL\tconclave [build failed]\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := failed(test.out); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestFind_Dependents(t *testing.T) {
	packages, err := (&ground{root: repository}).dependents("./raftlog")
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Join(packages, " ") + " "
	if !strings.HasPrefix(found, "./raftlog ./") || !strings.Contains(found, " ./cluster/core ") || !strings.Contains(found, " . ") {
		t.Errorf("%q", packages)
	}
	if strings.Contains(found, " ./internal/machine ") || strings.Contains(found, " ./storage ") {
		t.Errorf("packages that do not import it: %q", packages)
	}
}
