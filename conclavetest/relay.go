package conclavetest

import (
	"net"
	"sync"
	"sync/atomic"
)

// relay carries one connection. Once severed it reads on from both ends and
// forgets what it reads; that an end was closed it keeps to itself. Neither
// end can tell that from a network that drops every packet. A severed relay
// never carries again: bytes are missing, so after the cut it ends.
type relay struct {
	from, to int
	near     net.Conn // the other end of what the member from has
	far      net.Conn
	severed  atomic.Bool
}

func (r *relay) sever()          { r.severed.Store(true) }
func (r *relay) isSevered() bool { return r.severed.Load() }

// end breaks the connection for both. Both directions stop.
func (r *relay) end() {
	_ = r.near.Close() // a pipe, which cannot fail
	_ = r.far.Close()  // nothing is written any more that could be lost
}

// run carries until the connection has ended.
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
