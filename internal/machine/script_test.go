package machine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts yield into testdata")

// The scripts in testdata: prose on top, then blocks. The lines of a block
// above the ---- make one entry of the log and then ask questions; those below are
// the results. A line is
//
//	at 5s                      the entry's group time; else that of the last
//	term                       raft's empty entry
//	further level=11           before the first entry: the group is a further one, with members 1 to 3
//	A lock x s/1 wait          incarnation A's next call
//	A.7 lock x s/1             the same under sequence number 7
//	A floor 7                  A received the outcomes up to 7
//	A renew from=2             submitted by member 2, whatever A's
//	@a renew                   submitted by the client a, and marked as a client's
//	@a renew unmarked          not marked; "A renew marked" is the opposite
//	A write put k v ; delete l A's next call, one Write of two operations
//	? lock x                   or explain x, cycles, locks p, sessions, semaphore x, leader x,
//	                           key k, entries p, changes, checks, gossip, removed,
//	                           shards x, shard-sets, acquired A.7, known A, deadline, keys, counts, former
//
// Each entry is also applied to a machine that is loaded just before it, and both
// must yield the same.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			runScript(t, file)
		})
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := play(t, strings.TrimSpace(string(text)))
	if *rewrite {
		if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// play carries out a script and fails the test where something else comes of
// it. It returns the script with what came of it.
func play(t *testing.T, text string) string {
	t.Helper()
	s := &script{rig: newRig(), seqs: map[string]uint64{}}
	blocks := strings.Split(text, "\n\n")
	for i, block := range blocks {
		input, want, ok := strings.Cut(block+"\n", "\n----\n")
		if !ok {
			continue // prose
		}
		got, err := s.block(input)
		if err != nil {
			t.Fatalf("%v\n%s", err, input)
		}
		blocks[i] = strings.TrimSuffix(input+"\n----\n"+got, "\n")
		if got != want && !*rewrite {
			t.Errorf("%s\n----\n%swant\n%s", input, got, want)
		}
	}
	return strings.Join(blocks, "\n\n")
}

type script struct {
	rig   *rig
	words []string // of clients
	now   int64
	seqs  map[string]uint64
	batch *wire.Batch
	term  bool
}

// block carries out the lines above the ---- and returns those below.
func (s *script) block(input string) (string, error) {
	s.batch, s.term = &wire.Batch{Version: wire.BatchVersion}, false
	var asked []string
	entry := false
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if q, ok := strings.CutPrefix(line, "? "); ok {
			asked = append(asked, q)
			continue
		}
		entry = true
		if err := s.line(strings.Fields(line)); err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
	}
	var out strings.Builder
	if entry {
		if err := s.apply(); err != nil {
			return "", err
		}
		printResult(&out, s.rig.last)
	}
	for _, q := range asked {
		ask(&out, s.rig.straight, strings.Fields(q))
	}
	return s.named(out.String()), nil
}

func (s *script) apply() error {
	if err := s.rig.reload(); err != nil {
		return err
	}
	if s.term {
		return s.rig.apply(nil)
	}
	s.batch.Time = s.now
	return s.rig.apply(must(proto.Marshal(s.batch)))
}

// memberOf returns the member that submits a line: the one in from=N, or the
// incarnation's, or the one that the line registers.
func (s *script) memberOf(id wire.ID, words []string) uint64 {
	a := &arguments{words: words}
	if from, ok := a.value("from"); ok && from[0] == '@' {
		return wire.FingerprintOf(wordKey(from))
	} else if ok {
		return a.number("from")
	}
	if inc := s.rig.straight.incarnation(id); inc != nil {
		return inc.member
	}
	for _, sub := range s.batch.Submissions { // registered in the same entry
		if string(sub.Incarnation) == string(id[:]) && sub.Member != 0 {
			return sub.Member
		}
	}
	return a.number("member")
}

func (s *script) line(f []string) (err error) {
	switch {
	case f[0] == "at":
		d, err := time.ParseDuration(f[1])
		s.now = int64(d)
		return err
	case f[0] == "term":
		s.term = true
		return nil
	case f[0] == "further":
		a := &arguments{words: f}
		s.rig.further(uint32(a.number("level")))
		return a.err
	}
	who, number, explicit := strings.Cut(f[0], ".")
	id := makeID(who)
	sub := &wire.Submission{Incarnation: id[:]}
	if sub.Client = s.isClient(who); sub.Client && !slices.ContainsFunc(f, func(w string) bool { return strings.HasPrefix(w, "from=") }) {
		sub.Member = wire.FingerprintOf(wordKey(who))
	} else {
		sub.Member = s.memberOf(id, f[1:])
	}
	sub.Client = sub.Client && !slices.Contains(f, "unmarked") || slices.Contains(f, "marked")
	s.batch.Submissions = append(s.batch.Submissions, sub)
	if f[1] == "floor" {
		sub.Floor, err = strconv.ParseUint(f[2], 10, 64)
		return err
	}
	seq := s.seqs[who] + 1
	if explicit {
		if seq, err = strconv.ParseUint(number, 10, 64); err != nil {
			return err
		}
	}
	s.seqs[who] = max(s.seqs[who], seq)
	command, err := parseCommand(f[1:])
	sub.Calls = []*wire.Call{{Seq: seq, Command: command}}
	return err
}
