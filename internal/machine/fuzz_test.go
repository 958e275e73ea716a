package machine

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Any bytes as the entries of a log: never a panic, never a broken machine,
// and always what the reference says. The data is cut into entries at the
// marks of a length byte. With -fuzz, add -fuzzminimizetime=10x: the engine
// otherwise spends a minute on shortening each log that it finds new.
func FuzzApply(f *testing.F) {
	for seed := range uint64(3) {
		g, r := newGenerator(seed+1), newRig()
		var log []byte
		for len(log) < 2_000 {
			if data := g.entry(&r.model); len(data) < 256 {
				log = append(append(log, byte(len(data))), data...)
				if err := r.apply(data); err != nil {
					f.Fatal(err)
				}
			}
		}
		f.Add(log)
	}
	for _, log := range clientLogs(f) {
		f.Add(log)
	}
	for _, last := range fuzzCommands {
		var log []byte
		for i, line := range append(fuzzCommands[:3:3], last) {
			data := oneCall(f, uint64(i+1), line)
			log = append(append(log, byte(len(data))), data...)
		}
		f.Add(log)
	}
	f.Add(sharedLog(f))
	f.Add(logOf(f,
		"register member=1 boot=1 level=7", "raise level=7", "open s", "open t", "lock x s/1 shared", "lock y t/1", "lock y s/2 wait",
		"lock x t/2 wait refuse-deadlock", "lock x t/2 shared", "lock x s/3 wait refuse-deadlock",
	))
	f.Add(boundLog(f))
	f.Add(setLog(f))
	f.Add(jobsLog(f))
	f.Fuzz(func(t *testing.T, log []byte) {
		r := newRig()
		for len(log) > 0 {
			n := min(int(log[0]), len(log)-1)
			data := bytes.Clone(log[1 : 1+n])
			log = log[1+n:]
			if err := r.apply(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.reload(); err != nil {
			t.Fatal(err)
		}
	})
}

// fuzzCommands are one of each kind. The first three come before each.
var fuzzCommands = []string{
	"register member=1 boot=1",
	"check disk register ttl=3s",
	"open s ttl=none delay=5s delete checks=disk,gossip",
	"renew",
	"deregister",
	"remove-member voters=1,2",
	"close s",
	"attach s",
	"check disk critical",
	"drop disk",
	"gossip member=1 boot=1 dead",
	"lock x s/1 wait reentrant",
	"lock x s/1 election value=v",
	"unlock x s/1 fence=1",
	"proclaim x s/1 fence=1 value=w",
	"acquire p s limit=3 permits=2 wait",
	"release p s fence=1",
	"resize p limit=2",
	"withdraw A.4",
	"lock x s/1 shared wait lingering",
	"downgrade x s/1 fence=1",
	"lock x s/2 wait refuse-deadlock",
	"extend x s/1 fence=1 max-hold=1s",
	"lockset s/1 x shared=y wait label=l max-hold=1s refuse-deadlock",
	"unlockset s fence=1",
	"run-job j k s/1 attempts=2 keep=1s",
	"run-job j '' s/1 every=1s",
	"end-run j k s/1 fence=1 failed detail=why",
	"delete-job j",
	"write put k v flags=1 ; put-fenced k v fence=1 ; swap k v index=3 ; acquire k v session=s",
	"write expect-holder k session=s index=1 ; release k v session=s ; expect k index=3",
	"write delete k ; delete-if k index=0 ; delete-prefix a/",
}

// sharedLog has all that concerns shares.
func sharedLog(tb testing.TB) []byte {
	tb.Helper()
	return logOf(tb,
		"register member=1 boot=1 level=7", "raise level=7", "open s ttl=none delay=2s", "lock x s/1 shared reentrant", "lock x s/1 shared reentrant share=1",
		"lock x s/2 wait", "lock x s/3 shared wait lingering", "unlock x s/1 share=1", "withdraw A.6", "lock x s/3 wait", "unlock x s/1 share=1",
		"unlock x s/3 share=2", "downgrade x s/3 fence=3", "close s",
	)
}

// setLog has all that concerns sets.
func setLog(tb testing.TB) []byte {
	tb.Helper()
	return logOf(tb,
		"register member=1 boot=1 level=7", "raise level=7", "open s ttl=none delay=2s", "open t", "lockset s/1 x shared=y max-hold=1s",
		"lockset t/1 z x wait refuse-deadlock", "lock z s/2", "unlock z s/2 fence=3", "lock z s/2", "unlock z s/2 fence=4", "lock z s/2",
		"unlock z s/2 fence=5", "lock z s/2", "unlock z s/2 fence=6", "lock z s/3 wait", "lockset s/4 shared=z,y wait", "extend z s set fence=2 max-hold=1h",
		"unlockset s fence=2", "withdraw A.6", "lockset s/4 y x wait", "close s",
	)
}

// jobsLog has all that concerns jobs.
func jobsLog(tb testing.TB) []byte {
	tb.Helper()
	return logOf(tb,
		"register member=1 boot=1 level=8", "raise level=8", "open s ttl=none delay=2s", "open t", "run-job j k-9 s/1 attempts=2 keep=1s",
		"run-job j k-9 s/2 attempts=1", "run-job j k-9 t/1", "end-run j k-9 s/1 fence=1 failed detail=why", "run-job j '' t/1 every=1s", "run-job j '' s/1 every=1s",
		"end-run j '' t/1 fence=3", "withdraw A.10", "run-job j k-10 s/3 attempts=1", "run-job j k-10 s/4 attempts=1", "end-run j k-10 s/3 fence=4 not-started",
		"end-run j k-9 t/1 fence=2", "close s", "run-job j k-9 t/1",
	)
}

// logOf is a log of entries with one command each.
func logOf(tb testing.TB, lines ...string) (log []byte) {
	tb.Helper()
	for i, line := range lines {
		data := oneCall(tb, uint64(i+1), line)
		log = append(append(log, byte(len(data))), data...)
	}
	return log
}

// boundLog has all that concerns holds that end in time.
func boundLog(tb testing.TB) (log []byte) {
	tb.Helper()
	for i, line := range []string{
		"register member=1 boot=1 level=7", "raise level=7", "open s ttl=none delay=2s", "lock x s/1 max-hold=1s", "lock x s/2 wait max-hold=2s",
		"extend x s/1 fence=1 max-hold=1h", "lock x s/3 shared wait max-hold=3s", "unlock x s/1 fence=1", "downgrade x s/2 fence=2", "extend x s share=3 max-hold=1s",
		"acquire p s limit=1 permits=1 max-hold=1s", "acquire p s limit=1 permits=1 wait max-hold=2s", "extend p s permits fence=5 max-hold=2s", "close s",
	} {
		data := oneCall(tb, uint64(i+1), line)
		log = append(append(log, byte(len(data))), data...)
	}
	return log
}

// oneCall is the data of an entry with the one command.
func oneCall(tb testing.TB, seq uint64, line string) []byte {
	tb.Helper()
	command, err := parseCommand(strings.Fields(line))
	if err != nil {
		tb.Fatal(line, err)
	}
	id := wire.ID{1}
	return must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Submissions: []*wire.Submission{
		{Member: 1, Incarnation: id[:], Calls: []*wire.Call{{Seq: seq, Command: command}}},
	}}))
}

// Two pairs of a sound state with anything in their place: a machine that holds
// together, or an error.
func FuzzLoad(f *testing.F) {
	for _, d := range []disk{soundDisk(), numberedDisk(), boundDisk(), setDisk(), jobDisk()} {
		for k, v := range d {
			f.Add([]byte(k), v, []byte("lx"), []byte{})
		}
	}
	for k, v := range sharedDisk() {
		f.Add([]byte(k), v, []byte("hx\x00"+be(5)), []byte{})
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 []byte) {
		for _, d := range []disk{soundDisk(), sharedDisk(), numberedDisk(), boundDisk(), setDisk(), jobDisk()} {
			d[string(k1)], d[string(k2)] = v1, v2
			m, err := Load(d.pairs())
			if err != nil {
				continue
			}
			if err := audit(m); err != nil {
				t.Fatal(err)
			}
		}
	})
}
