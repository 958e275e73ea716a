package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bug is a mistake that somebody could make, and the test that has to notice it.
type bug struct {
	name string
	what string // in one line, as the mistake
	file string // from the repository's root
	old  string // occurs exactly once in the file
	new  string
	test test
}

// test is the cheapest run that fails because of the bug.
type test struct {
	pkg  string // "./cluster"; "." is the package conclave
	run  string // -run, without the ^ and $ of each part
	args []string
}

// seeds are the simulator's first runs, for what no directed test kills. One seed
// would do, until the simulator changes and its story with it.
func seeds(n int) test {
	return test{"./internal/sim", "TestSeeds", []string{"-seeds", fmt.Sprint(n)}}
}

func (t test) String() string {
	return strings.Join(append([]string{t.pkg, t.run}, t.args...), " ")
}

// pattern is the test's name as -run wants it, each part in full.
func (t test) pattern() string {
	parts := strings.Split(t.run, "/")
	for i, p := range parts {
		parts[i] = "^" + p + "$"
	}
	return strings.Join(parts, "/")
}

// plant returns the file with the bug in it.
func (b *bug) plant(root string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.file)))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(source), b.old); n != 1 {
		return nil, fmt.Errorf("%s has the piece to be replaced %d times", b.file, n)
	}
	return []byte(strings.Replace(string(source), b.old, b.new, 1)), nil
}

func table() []bug {
	return slices.Concat(diskBugs(), clusterBugs(), machineBugs(), heldBugs(), checkBugs(), programBugs())
}
