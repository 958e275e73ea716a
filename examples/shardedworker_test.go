//go:build unix

package examples

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Three processes share 12 shards. One restarts, and nothing begins or ends elsewhere; one is killed, and the others get what it had;
// when it is back, it gets its part again. Each shard has had one writer at a time.
func TestShardedWorker_RestartedAndKilled(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	settles := map[string]string{"anna": "10m", "ben": "10m", "clara": "1s"} // longer, and shorter, than what this test waits for
	all := startGroup(t, "shardedworker", func(name string) []string { return []string{"-settle", settles[name]} },
		"-ttl", "10s", "-every", "20ms", "-store", store)
	anna, ben, clara := all[0], all[1], all[2]
	awaitShards(t, 4, all[:]...)

	before := map[*process]int{anna: changes(anna), clara: changes(clara)}
	own := working(ben)
	ben.signal(syscall.SIGTERM)
	ben.expect("closed$")
	if status := ben.wait(); status != 0 || len(working(ben)) > 0 {
		t.Errorf("ben: exit status %d, and shards %v, want 0 and none", status, working(ben))
	}
	ben = again(t, ben)
	awaitShards(t, 4, ben)
	if back := working(ben); !slices.Equal(back, own) {
		t.Errorf("ben works on the shards %v after its restart, want %v", back, own)
	}
	for p, n := range before {
		if got := changes(p); got != n {
			t.Errorf("%s: %d shards have begun or ended while ben was restarted", p.name, got-n)
		}
	}

	clara.kill()
	awaitShards(t, 6, anna, ben)
	clara = again(t, clara)
	awaitShards(t, 4, anna, ben, clara)
	interrupt(t, anna, ben, clara)
	oneWriterAtATime(t, store)
}

// again starts a process that has ended with its own arguments.
func again(t *testing.T, p *process) *process {
	t.Helper()
	return start(t, p.name, nil, filepath.Base(p.cmd.Path), p.cmd.Args[1:]...)
}

var shardLine = regexp.MustCompile(`(BEGINS|ENDS) shard (\d+) `)

// changes is how often a process has begun or ended a shard.
func changes(p *process) int { return len(shardLine.FindAllString(strings.Join(p.text(), "\n"), -1)) }

// working is the shards that a process works on.
func working(p *process) []string {
	shards := make(map[string]bool)
	for _, line := range p.text() {
		if m := shardLine.FindStringSubmatch(line); m != nil {
			if m[1] == "ENDS" {
				delete(shards, m[2])
			} else {
				shards[m[2]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(shards))
}

// awaitShards waits until each of up to three processes works on n shards.
func awaitShards(t *testing.T, n int, all ...*process) {
	t.Helper()
	timeout := time.After(waitTimeout)
	for {
		var printed [3]<-chan struct{}
		others, has := false, ""
		for i, p := range all {
			p.mu.Lock()
			printed[i] = p.printed
			p.mu.Unlock()
			shards := working(p)
			others = others || len(shards) != n
			has += fmt.Sprintf(" %s: %v", p.name, shards)
		}
		if !others {
			return
		}
		select {
		case <-printed[0]:
		case <-printed[1]:
		case <-printed[2]:
		case <-timeout:
			t.Fatalf("after %v not all work on %d shards:%s", waitTimeout, n, has)
		}
	}
}

// oneWriterAtATime checks that in each file what counts is one count, each value written once.
func oneWriterAtATime(t *testing.T, store string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "shard-*"))
	if err != nil || len(files) != 12 {
		t.Fatalf("the store has the files %v (error %v), want 12", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		largest, value := 0, 0
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			fields := strings.Fields(line)
			fence := number(t, fields[0])
			if fence < largest {
				continue // written too late, and refused
			}
			if largest = fence; fields[2] == "begin" {
				continue
			}
			if value++; number(t, fields[2]) != value {
				t.Fatalf("%s: value %s, want %d:\n%s", filepath.Base(file), fields[2], value, text)
			}
		}
		if value == 0 {
			t.Errorf("%s: nothing was written", filepath.Base(file))
		}
	}
}
