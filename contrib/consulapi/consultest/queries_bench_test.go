package consultest

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/contrib/consulapi"
)

// BenchmarkBlockingQueries measures lock and unlock of native locks by 64 callers on one node, without and
// with a thousand blocking queries pending at the handler of that node, by turns. The ratio is the median
// of the turns' ratios; it should be 0.95 or more. The benchmark without queries
// compares with nothing, so it shows how exact a ratio is on this machine. A difference may be the
// garbage collector's, which looks at the stacks of the queries: GOGC=400 shows that.
//
//	go test -run '^$' -bench BlockingQueries -benchtime 1000000x .
func BenchmarkBlockingQueries(b *testing.B) {
	for _, members := range []int{1, 3} {
		for _, queries := range []int{0, 1000} {
			b.Run(fmt.Sprintf("members=%d/queries=%d", members, queries), func(b *testing.B) { benchmarkQueries(b, members, queries) })
		}
	}
}

func benchmarkQueries(b *testing.B, members, queries int) {
	const turns = 8
	inMemory := conclavetest.Configure(func(_ int, cfg *conclave.Config) { cfg.Dir = "" })
	a := &agents{t: b, group: conclavetest.Start(b, members, inMemory)}
	node := a.group.Node(a.group.Leader())
	p := &pending{b: b, handler: consulapi.Handler(node, nil), arrived: make(chan struct{}, queries), left: make(chan struct{}, queries)}
	a.serve(p)
	cycles := max(b.N/turns/2, 64)
	settle := func() { rate(b, node, max(cycles/4, 64)) } // what connections leave behind is not measured
	settle()
	var without, with, ratios []float64
	b.ResetTimer()
	for turn := range turns {
		var idle, busy float64
		for half := range 2 { // the order changes, as a machine may become slower or faster
			if (turn+half)%2 == 0 {
				settle()
				idle = rate(b, node, cycles)
				continue
			}
			end := p.query(b, a.addr(0), queries)
			settle()
			busy = rate(b, node, cycles)
			end()
		}
		without, with, ratios = append(without, idle), append(with, busy), append(ratios, busy/idle)
	}
	b.StopTimer()
	b.ReportMetric(median(without), "cycles/s-without")
	b.ReportMetric(median(with), "cycles/s-with")
	b.ReportMetric(median(ratios), "ratio")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// rate runs cycles of lock and unlock, and returns how many it ran per second.
func rate(b *testing.B, node *conclave.Node, cycles int) float64 {
	const callers = 64
	var left atomic.Int64
	left.Store(int64(cycles))
	var running sync.WaitGroup
	began := time.Now()
	for i := range callers {
		l := node.FencedLock(fmt.Sprint("lock-", i))
		running.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := l.Lock(b.Context()); err != nil {
					b.Error(err)
					return
				}
				if err := l.Unlock(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	return float64(cycles) / time.Since(began).Seconds()
}

// pending is a handler that reports the arrival and the end of blocking queries.
type pending struct {
	b             *testing.B
	handler       http.Handler
	arrived, left chan struct{}
	ending        atomic.Bool
}

func (p *pending) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !r.URL.Query().Has("index") {
		p.handler.ServeHTTP(w, r)
		return
	}
	p.arrived <- struct{}{}
	p.handler.ServeHTTP(w, r)
	if !p.ending.Load() {
		p.b.Errorf("the query %s ended", r.URL)
	}
	p.left <- struct{}{}
}

// query makes blocking queries, half of them of a key and half of a prefix, which nothing changes. Each is a
// connection that nothing reads, so that the clients cost this process next to nothing. It returns when all
// have arrived. The function that it returns ends them.
func (p *pending) query(b *testing.B, addr string, n int) (end func()) {
	b.Helper()
	resp, err := http.Get("http://" + addr + "/v1/kv/watched/0")
	must(b, err)
	index := resp.Header.Get("X-Consul-Index")
	must(b, resp.Body.Close())
	var conns []net.Conn
	for i := range n {
		conn, err := net.Dial("tcp", addr)
		must(b, err)
		conns = append(conns, conn)
		recurse := [...]string{"", "&recurse"}[i%2]
		_, err = fmt.Fprintf(conn, "GET /v1/kv/watched/%d?wait=10m&index=%s%s HTTP/1.1\r\nHost: localhost\r\n\r\n", i, index, recurse)
		must(b, err)
	}
	for range n {
		<-p.arrived
	}
	return func() {
		p.ending.Store(true)
		for _, conn := range conns {
			_ = conn.Close()
		}
		for range n {
			<-p.left
		}
		p.ending.Store(false)
	}
}
