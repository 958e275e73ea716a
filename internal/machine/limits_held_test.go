package machine

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// read turns the line of a script into a command.
func read(tb testing.TB, format string, args ...any) *wire.Command {
	tb.Helper()
	c := new(wire.Command)
	data, err := parseCommand(strings.Fields(fmt.Sprintf(format, args...)))
	if err == nil {
		err = proto.Unmarshal(data, c)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// line does what the line of a script says, as one entry.
func (d *driver) line(code wire.Code, format string, args ...any) *wire.Reply {
	d.tb.Helper()
	return d.want(code, d.do(read(d.tb, format, args...)))
}

func TestLimit_Checks(t *testing.T) {
	d := newDriver(t)
	for i := range MaxChecks {
		d.line(wire.Code_OK, "check c%d register", i)
	}
	d.line(wire.Code_BUSY, "check more register")
	d.line(wire.Code_OK, "check c0 register critical")
	d.line(wire.Code_OK, "drop c0")
	d.line(wire.Code_OK, "check more register")
	d.line(wire.Code_BUSY, "check c0 register")
}

// Sessions are limited in all, whosever they are: those without a TTL outlive the
// processes that they would count for.
func TestLimit_GroupSessions(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=none")
	for i := range MaxAllSessions - 1 {
		d.m.sessions[wire.ID{1, byte(i), byte(i >> 8), byte(i >> 16)}] = nil // as if
	}
	d.line(wire.Code_BUSY, "open t")
	d.line(wire.Code_OK, "open s")
	d.line(wire.Code_OK, "close s")
	d.line(wire.Code_OK, "open t")
}

// What a session holds and awaits is limited in all, whatever it is.
func TestLimit_Places(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "open t ttl=1h")
	held := []string{"lock x s/1", "lock x s/1 election", "acquire x s limit=2 permits=1", "write acquire x v session=s"}
	places := &d.m.sessions[makeID("s")].holds.Len
	*places += MaxPlaces - len(held) // as if it held so many more locks
	for _, line := range held {
		d.line(wire.Code_OK, "%s", line)
	}
	for _, line := range []string{
		"lock y s/1", "lock y s/1 election", "lock x s/2 wait", "acquire x s limit=2 permits=1",
		"acquire x s limit=2 permits=2 wait", "write acquire y v session=s",
	} {
		d.line(wire.Code_BUSY, "%s", line)
	}
	d.line(wire.Code_OK, "write acquire x w session=s") // has it already
	d.line(wire.Code_OK, "lock x s/1 reentrant")        // counts as the same hold
	d.line(wire.Code_OK, "lock y t/1")
	d.line(wire.Code_OK, "write release x v session=s")
	d.line(wire.Code_QUEUED, "lock y s/1 wait")
	d.line(wire.Code_BUSY, "write acquire x v session=s")
	*places -= MaxPlaces - len(held)
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// A semaphore's queue is limited as a lock's is, and so is an election's.
func TestLimit_WaitersSemaphoreElection(t *testing.T) {
	for _, line := range []string{"acquire x s limit=1 permits=1 wait", "lock x s/1 election wait"} {
		d := newDriver(t)
		d.line(wire.Code_OK, "open s ttl=1h")
		d.line(wire.Code_OK, "%s", line)
		commands := make([]*wire.Command, MaxWaiters)
		for i := range commands {
			commands[i] = read(t, "%s", line)
		}
		first := d.seq + 1
		d.want(wire.Code_QUEUED, d.do(commands...))
		d.line(wire.Code_BUSY, "%s", line)
		d.want(wire.Code_OK, d.do(withdrawCommand(d.inc, first+7)))
		d.line(wire.Code_QUEUED, "%s", line)
	}
}

// Each Resize keeps a semaphore forever, so there are not more of them than a
// limit; resizing one again is no more.
func TestLimit_Resized(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	commands := make([]*wire.Command, MaxResized/4)
	for n := range 4 {
		for i := range commands {
			commands[i] = &wire.Command{Op: &wire.Command_Resize{Resize: &wire.Resize{Name: fmt.Sprint(n, "/", i), Limit: 1}}}
		}
		d.want(wire.Code_OK, d.do(commands...))
	}
	d.line(wire.Code_TOO_LARGE, "resize more limit=1")
	d.line(wire.Code_OK, "resize 0/0 limit=2")
	d.line(wire.Code_OK, "acquire more s limit=1 permits=1")
	d.line(wire.Code_TOO_LARGE, "resize more limit=2")
}

func TestLimit_DeletePrefix(t *testing.T) {
	d := newDriver(t)
	for n := range MaxPrefixKeys/MaxOps + 1 {
		w := &wire.Write{}
		for i := range MaxOps {
			w.Ops = append(w.Ops, &wire.KeyOp{Kind: wire.KeyOp_PUT, Key: fmt.Sprint("a/", n, "/", i)})
		}
		d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_Write{Write: w}}))
	}
	d.line(wire.Code_TOO_LARGE, "write delete-prefix a/")
	d.line(wire.Code_TOO_LARGE, "write delete-prefix ''")
	// Together they have too many, though none of them alone.
	together := "write put b v"
	for n := range 10 {
		together += fmt.Sprint(" ; delete-prefix a/", n)
	}
	if r := d.line(wire.Code_TOO_LARGE, "%s", together); r.Op != 10 {
		t.Errorf("operation %d is refused, want the last, 10", r.Op)
	}
	if keyOf(d.m, "b") != nil || d.m.keys.tree.Len() != (MaxPrefixKeys/MaxOps+1)*MaxOps {
		t.Error("a refused write changed keys")
	}
	d.line(wire.Code_OK, "write delete-prefix a/0/")
	d.line(wire.Code_OK, "write delete-prefix a/")
	if n := len(d.m.keys.delays) + d.m.keys.tree.Len(); n != 0 || d.m.keys.bytes != 0 {
		t.Errorf("%d keys of %d bytes are left", n, d.m.keys.bytes)
	}
}

// All keys together are limited in number and in bytes. What is no larger than
// before is always possible, and so is what makes room in the same Write.
func TestLimit_Keys(t *testing.T) {
	d := newDriver(t)
	for i := range MaxKeys {
		d.m.keys.replace(nil, &fact.Entry{Key: fmt.Sprint(i), CreateIndex: 1, ModifyIndex: 1})
	}
	d.line(wire.Code_BUSY, "write put new v")
	d.line(wire.Code_OK, "write put 0 v")
	d.line(wire.Code_BUSY, "write put new v ; delete 0")
	d.line(wire.Code_OK, "write delete 0 ; put new v")

	d = newDriver(t)
	value := make([]byte, MaxValue)
	for i := range MaxKeyBytes / MaxValue {
		key := fmt.Sprint("key/", 100_000+i)
		d.m.keys.replace(nil, &fact.Entry{Key: key, Value: value[len(key):], CreateIndex: 1, ModifyIndex: 1})
	}
	d.line(wire.Code_BUSY, "write put n")
	d.line(wire.Code_OK, "write delete key/100000 ; put new/100000 long:%d", MaxValue-len("new/100000"))
	d.line(wire.Code_BUSY, "write put key/100001 long:%d", MaxValue-len("key/100001")+1)
	d.line(wire.Code_OK, "write put key/100001 long:%d", MaxValue-len("key/100001")-1)
	d.line(wire.Code_OK, "write put n")
	d.line(wire.Code_BUSY, "write put m")
}

// With the last fence given out, nothing is granted in any space: who asks is
// refused, who waits is refused when it is its turn, and what an earlier process
// left stays as it is.
func TestFence_ExhaustedEverywhere(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "open n ttl=none")
	d.line(wire.Code_OK, "lock e s/1 election value=last")
	d.line(wire.Code_OK, "lock left n/1 election value=left")
	d.line(wire.Code_OK, "acquire left n limit=1 permits=1")
	d.line(wire.Code_OK, "lock left n/1")
	d.line(wire.Code_OK, "acquire p s limit=2 permits=2")
	d.line(wire.Code_QUEUED, "acquire p s limit=2 permits=1 wait")
	d.line(wire.Code_QUEUED, "acquire p s limit=2 permits=2 wait")
	d.line(wire.Code_QUEUED, "lock e s/2 election value=never wait")
	d.m.fences = maxFences

	d.line(wire.Code_TOO_LARGE, "acquire q s limit=1 permits=1")
	d.line(wire.Code_TOO_LARGE, "lock q s/1 election")
	for _, o := range d.do(read(t, "release p s fence=5"))[:2] {
		d.want(wire.Code_TOO_LARGE, []fact.Outcome{o})
	}
	for _, o := range d.do(read(t, "unlock e s/1 fence=1 election"))[:1] {
		d.want(wire.Code_TOO_LARGE, []fact.Outcome{o})
	}
	for _, name := range []string{"p", "q"} {
		if semaphoreOf(d.m, name) != nil {
			t.Errorf("semaphore %s is still there", name)
		}
	}
	if leaderOf(d.m, "e") != nil || leaderOf(d.m, "q") != nil {
		t.Error("the election has a leader")
	}
	d.inc = wire.ID{2}
	d.seq = 0
	d.line(wire.Code_OK, "register member=1 boot=2 ttl=1h")
	d.line(wire.Code_OK, "attach n")
	before := views(d.m)
	d.line(wire.Code_TOO_LARGE, "lock left n/1")
	d.line(wire.Code_TOO_LARGE, "lock left n/1 election value=new")
	d.line(wire.Code_TOO_LARGE, "acquire left n limit=1 permits=1")
	if after := views(d.m); after != before {
		t.Errorf("%s\nbecame\n%s", before, after)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}

// The values in elections, of leaders and candidates, are limited
// together.
func TestLimit_CandidateBytes(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "lock e s/1 election value=abc")
	d.line(wire.Code_QUEUED, "lock e s/2 election value=abcd wait")
	d.m.candidates += MaxCandidates - 8
	d.line(wire.Code_BUSY, "lock f s/1 election value=ab")
	d.line(wire.Code_BUSY, "lock e s/3 election value=ab wait")
	d.line(wire.Code_OK, "lock f s/1 election value=a")
	d.line(wire.Code_OK, "unlock f s/1 fence=2 election")
	d.line(wire.Code_OK, "unlock e s/1 fence=1 election")
	d.line(wire.Code_OK, "lock f s/1 election value=abcd")
	if n := d.m.candidates - (MaxCandidates - 8); n != 8 {
		t.Errorf("%d bytes are counted", n)
	}
}

// The queue places of a process are limited in all: the entry in which it ends removes
// them.
func TestLimit_PlacesOfProcess(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	for _, name := range []string{"a", "b", "c"} {
		d.line(wire.Code_OK, "lock %s s/1", name)
	}
	for _, name := range []string{"a", "b"} {
		places := make([]*wire.Command, MaxQueued/2)
		for i := range places {
			places[i] = read(t, "lock %s s/2 wait", name)
		}
		d.want(wire.Code_QUEUED, d.do(places...))
	}
	first := d.seq
	d.line(wire.Code_BUSY, "lock c s/2 wait")
	d.line(wire.Code_OK, "lock c s/1 election")
	d.line(wire.Code_BUSY, "lock c s/2 election wait")
	d.line(wire.Code_OK, "acquire c s limit=1 permits=1")
	d.line(wire.Code_BUSY, "acquire c s limit=1 permits=1 wait")
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_Withdraw{Withdraw: &wire.Withdraw{Incarnation: d.inc[:], Seq: first}}}))
	d.line(wire.Code_QUEUED, "lock c s/2 wait")
	d.line(wire.Code_BUSY, "lock c s/3 wait")
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
}
