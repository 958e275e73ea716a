package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// startGroup starts three processes of an example that form a group. Each also
// gets the arguments that own returns for its name.
func startGroup(t *testing.T, example string, own func(name string) []string, args ...string) [3]*process {
	t.Helper()
	var all [3]*process
	dir := t.TempDir()
	first := ""
	for i, name := range []string{"anna", "ben", "clara"} {
		its := []string{"-dir", filepath.Join(dir, name), "-expect", "3", "-name", name}
		if first != "" {
			its = append(its, "-join", first)
		}
		its = append(its, args...)
		if own != nil {
			its = append(its, own(name)...)
		}
		all[i] = start(t, name, nil, example, its...)
		if addr := all[i].expect(`listening on (\S+);`)[0]; first == "" {
			first = addr
		}
	}
	for _, p := range all {
		p.expect(`is in the group`)
	}
	return all
}

// number parses a submatch.
func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// interrupt interrupts processes and checks that they end gracefully.
func interrupt(t *testing.T, all ...*process) {
	t.Helper()
	for _, p := range all {
		p.signal(os.Interrupt)
	}
	for _, p := range all {
		p.expect("closed$")
		if status := p.wait(); status != 0 {
			t.Errorf("%s: exit status %d, want 0", p.name, status)
		}
	}
}

// expectAny waits until one of up to three processes prints a line that matches,
// and returns it with the submatches.
func expectAny(t *testing.T, pattern string, among ...*process) (*process, []string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.After(waitTimeout)
	for {
		var printed [3]<-chan struct{}
		for i, p := range among {
			p.mu.Lock()
			lines := p.lines
			printed[i] = p.printed
			p.mu.Unlock()
			for at := p.read; at < len(lines); at++ {
				if match := re.FindStringSubmatch(lines[at]); match != nil {
					p.read = at + 1
					return p, match[1:]
				}
			}
		}
		select {
		case <-printed[0]:
		case <-printed[1]:
		case <-printed[2]:
		case <-timeout:
			t.Fatalf("no process printed %q in %v", pattern, waitTimeout)
		}
	}
}
