package conclavetest

import (
	"net"
	"sync"
	"sync/atomic"
)

// relay carries one connection. Once severed it discards what it reads from both ends,
// and does not close one end when the other is closed, like a network that drops every
// packet. A severed relay does not recover, as bytes are missing: it ends when the
// partition heals.
type relay struct {
	from, to int
	near     net.Conn // the other end of the pipe that member from has
	far      net.Conn
	severed  atomic.Bool
}

func (r *relay) sever()          { r.severed.Store(true) }
func (r *relay) isSevered() bool { return r.severed.Load() }

// end breaks the connection in both directions.
func (r *relay) end() {
	_ = r.near.Close() // a pipe, which cannot fail
	_ = r.far.Close()  // nothing is written any more
}

// run carries the connection until it has ended.
func (r *relay) run() {
	var directions sync.WaitGroup
	directions.Go(func() { r.carry(r.near, r.far) })
	directions.Go(func() { r.carry(r.far, r.near) })
	directions.Wait()
}

func (r *relay) carry(to, from net.Conn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !r.isSevered() {
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			if !r.isSevered() {
				r.end()
			}
			return
		}
	}
}
