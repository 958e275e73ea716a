package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// trio starts three processes of an example that form a group. Each also gets
// the arguments that own makes of its name.
func trio(t *testing.T, example string, own func(name string) []string, args ...string) [3]*process {
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

// number reads what a pattern's group has matched.
func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// leave interrupts processes and wants them to end in good order.
func leave(t *testing.T, all ...*process) {
	t.Helper()
	for _, p := range all {
		p.signal(os.Interrupt)
	}
	for _, p := range all {
		p.expect("closed$")
		if status := p.wait(); status != 0 {
			t.Errorf("%s: exit status %d", p.name, status)
		}
	}
}

// Wrong flags of the examples that are members: status 2, and a line that says
// what is wrong.
func TestFlags(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	here := []string{"-dir", filepath.Join(temp, "data")}
	named := slices.Concat(here, []string{"-name", "anna"})
	stored := slices.Concat(named, []string{"-store", filepath.Join(temp, "store")})
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	for _, c := range []struct {
		example string
		args    []string
		want    string
	}{
		{"leaderelection", nil, "-dir is missing"},
		{"leaderelection", here, "-name is missing"},
		{"leaderelection", with(named, "-tick", "0s"), "-tick is 0s"},
		{"leaderelection", with(named, "-ttl", "1ms"), "SessionTTL is 1ms"},
		{"ratelimit", with(named, "-limit", "0"), "-limit is 0"},
		{"ratelimit", with(named, "-workers", "0"), "-workers is 0"},
		{"configwatch", with(named, "now"), `"now" is not a flag`},
		{"configwatch", with(named, "-join", "here"), `Join "here" has to be host:port`},
		{"exclusivejob", named, "-store is missing"},
		{"exclusivejob", with(stored, "-every", "10"), `invalid value "10"`},
		{"exclusivejob", with(stored, "-every", "0s"), "-every is 0s"},
	} {
		p := start(t, c.example, nil, c.example, c.args...)
		status, text := p.wait(), strings.Join(p.text(), "\n")
		if status != 2 || !strings.Contains(text, c.want) {
			t.Errorf("%s %q: exit status %d; want %q in\n%s", c.example, c.args, status, c.want, text)
		}
	}
}

// whichever waits until one of up to three processes prints a line that matches,
// and returns it with what the pattern's groups matched.
func whichever(t *testing.T, pattern string, among ...*process) (*process, []string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.After(patience)
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
		case <-late:
			t.Fatalf("none printed %q in %v", pattern, patience)
		}
	}
}
