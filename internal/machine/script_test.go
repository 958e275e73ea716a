package machine

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts yield into testdata")

// The scripts in testdata: prose on top, then blocks. The lines of a block
// above the ---- make one entry of the log, and then ask; those below say what
// comes of it. A line is
//
//	at 5s                      the entry's group time; else that of the last
//	term                       raft's empty entry
//	A lock x s/1 wait          incarnation A's next call
//	A.7 lock x s/1             the same under sequence number 7
//	A floor 7                  A received the outcomes up to 7
//	? lock x                   or locks p, sessions, acquired x A.7, known A,
//	                           deadline, keys
//
// Each entry is also applied to a machine that is loaded anew before it, and
// both must yield the same.
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
	s := &script{rig: newRig(), seqs: map[string]uint64{}}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	for i, block := range blocks {
		input, want, ok := strings.Cut(block+"\n", "\n----\n")
		if !ok {
			continue // prose
		}
		got, err := s.block(input)
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, input)
		}
		blocks[i] = strings.TrimSuffix(input+"\n----\n"+got, "\n")
		if got != want && !*rewrite {
			t.Errorf("%s\n----\n%swant\n%s", input, got, want)
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.Join(blocks, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

type script struct {
	rig   *rig
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
	return out.String(), nil
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

func (s *script) line(f []string) (err error) {
	switch {
	case f[0] == "at":
		d, err := time.ParseDuration(f[1])
		s.now = int64(d)
		return err
	case f[0] == "term":
		s.term = true
		return nil
	}
	who, number, explicit := strings.Cut(f[0], ".")
	id := makeID(who)
	sub := &wire.Submission{Incarnation: id[:]}
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

// arguments are the words of a line: some by place, some key=value, some flags.
type arguments struct {
	words []string
	err   error
}

func (a *arguments) at(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	a.err = fmt.Errorf("word %d is missing", i)
	return ""
}

func (a *arguments) flag(name string) bool {
	for _, w := range a.words {
		if w == name {
			return true
		}
	}
	return false
}

func (a *arguments) value(key string) (string, bool) {
	for _, w := range a.words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (a *arguments) number(key string) uint64 {
	v, ok := a.value(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		a.err = err
	}
	return n
}

func (a *arguments) duration(key string, missing time.Duration) int64 {
	v, ok := a.value(key)
	if !ok {
		return int64(missing)
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.err = err
	}
	return int64(d)
}

// owner reads session/handle.
func (a *arguments) owner(i int) ([]byte, uint64) {
	name, handle, _ := strings.Cut(a.at(i), "/")
	n, err := strconv.ParseUint(handle, 10, 64)
	if err != nil {
		a.err = err
	}
	id := makeID(name)
	return id[:], n
}

func (a *arguments) name(i int) string {
	switch n := a.at(i); {
	case n == "''":
		return ""
	case n == "NUL":
		return "a\x00b"
	case strings.HasPrefix(n, "long:"):
		size, err := strconv.Atoi(n[len("long:"):])
		if err != nil {
			a.err = err
		}
		return strings.Repeat("n", size)
	default:
		return n
	}
}

func parseCommand(words []string) ([]byte, error) {
	a := &arguments{words: words}
	c := new(wire.Command)
	switch words[0] {
	case "register":
		c.Op = &wire.Command_Register{Register: &wire.Register{
			Member: a.number("member"), Boot: a.number("boot"), Attempt: uint32(a.number("attempt")),
			Ttl: a.duration("ttl", 10*time.Second),
		}}
	case "renew":
		c.Op = &wire.Command_Renew{Renew: &wire.Renew{}}
	case "deregister":
		c.Op = &wire.Command_Deregister{Deregister: &wire.Deregister{}}
	case "open":
		id := makeID(a.at(1))
		name, _ := a.value("name")
		c.Op = &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
			Id: id[:], Name: (&arguments{words: []string{name}}).name(0),
			Ttl: a.duration("ttl", 10*time.Second), LockDelay: a.duration("delay", 0),
		}}
	case "close":
		id := makeID(a.at(1))
		c.Op = &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: id[:], Graceful: a.flag("graceful")}}
	case "lock":
		op := &wire.Lock{
			Name: a.name(1), Reentrant: a.flag("reentrant"), Limit: uint32(a.number("limit")),
			Wait: a.flag("wait"), Fence: a.number("fence"),
		}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Lock{Lock: op}
	case "unlock":
		op := &wire.Unlock{Name: a.name(1), Fence: a.number("fence")}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Unlock{Unlock: op}
	case "withdraw":
		op := &wire.Withdraw{Name: a.name(1), Seq: a.number("seq")}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Withdraw{Withdraw: op}
	case "bytes":
		return hex.DecodeString(a.at(1))
	default:
		return nil, fmt.Errorf("no such command")
	}
	return must(proto.Marshal(c)), a.err
}
