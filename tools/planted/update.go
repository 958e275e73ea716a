package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// tree is a working tree and its bugs.
type tree struct {
	root   string
	source *source
	table  *table
	suite  *suite
}

// loadTree reads a working tree and matches every bug.
func loadTree(root string) (*tree, error) {
	files, err := goFiles(root)
	if err != nil {
		return nil, err
	}
	s, err := loadSource(root, files)
	if err != nil {
		return nil, err
	}
	tests, err := loadSuite(root, files)
	if err != nil {
		return nil, err
	}
	bugs, err := loadBugs(root)
	if err != nil {
		return nil, err
	}
	return &tree{root, s, match(s, bugs), tests}, nil
}

// fault returns why a bug does not fit, if it does not.
func (t *tree) fault(b bug) error {
	if err := t.table.faults[b.name]; err != nil {
		return err
	}
	return t.suite.has(t.root, b.test)
}

// update writes the patches of bugs in the names of today, and reports what
// moved and what does not fit. It returns whether all fit.
func (t *tree) update(bugs []bug) (bool, error) {
	h := &history{t.root, t.suite, make(map[string]*suite)}
	all, written := true, 0
	for _, b := range bugs {
		today := b
		if err := t.table.faults[b.name]; err != nil {
			fmt.Printf("%s %v\n", b.name, err)
			all = false
		} else {
			p := t.table.found[b.name]
			if today = p.bug; p.note != "" {
				fmt.Printf("%s: check it: %s\n", b.name, p.note)
			}
		}
		if t.suite.has(t.root, b.test) != nil {
			killer, err := h.rename(&b)
			if err != nil {
				fmt.Printf("%s: %v: try -find %s\n", b.name, err, b.name)
				all = false
			} else {
				fmt.Printf("%s: %s is called %s\n", b.name, b.test, killer)
				today.test = killer
			}
		}
		if today.file != b.file {
			fmt.Printf("%s: moved to %s\n", b.name, today.file)
		}
		if today.format() != b.format() {
			if err := t.write(today); err != nil {
				return false, err
			}
			written++
		}
	}
	fmt.Printf("%d of %d patches rewritten\n", written, len(bugs))
	return all, nil
}

func (t *tree) write(b bug) error {
	return os.WriteFile(filepath.Join(t.root, b.path), []byte(b.format()), 0o644)
}
