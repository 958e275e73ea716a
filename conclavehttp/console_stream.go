package conclavehttp

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	writeTimeout = 5 * time.Second
	streamLife   = 10 * time.Minute // so that a stream is authorized again
	keepAlive    = 15 * time.Second
)

// stream sends the parts of the page that change, as server-sent events. Each browser gets the
// latest version of a part, once a second: nothing is queued for a slow one, which is
// disconnected.
func (h *ConsoleHandler) stream(w http.ResponseWriter, r *http.Request) {
	v, err := h.viewOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out := http.NewResponseController(w)
	if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		http.Error(w, fmt.Sprintf("the server cannot stream: %v", err), http.StatusNotImplemented)
		return
	}
	_ = out.SetReadDeadline(time.Time{}) // else Server.ReadTimeout ends the stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	f := &following{group: v.Group, queries: v.queries()}
	h.board.show(f)
	defer h.board.hide(f)
	h.board.local(time.Now(), v.Group)
	h.connect()
	defer h.disconnect()
	h.follow(w, r, f)
}

// follow writes what changes until the browser, the node or the console ends it.
func (h *ConsoleHandler) follow(w http.ResponseWriter, r *http.Request, f *following) {
	out := http.NewResponseController(w)
	end := time.NewTimer(streamLife)
	defer end.Stop()
	// All browsers connect again at once after a restart; their updates are spread.
	next := time.NewTimer(rand.N(refresh))
	defer next.Stop()
	sent := time.Now()
	message := []byte("retry: 2000\n\n")
	for {
		parts := h.board.news(f)
		for _, p := range parts {
			message = append(message, p.event...)
		}
		if len(parts) == 0 && time.Since(sent) > keepAlive {
			message = append(message, ":\n\n"...) // so that a connection that is broken is noticed
		}
		if len(message) > 0 {
			sent = time.Now()
			if out.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
				return
			}
			if _, err := w.Write(message); err != nil || out.Flush() != nil {
				return // the browser has disconnected, or is too slow
			}
			message = message[:0]
		}
		select {
		case <-next.C:
			next.Reset(refresh)
		case <-r.Context().Done():
			return
		case <-h.node.Done():
			return
		case <-h.closed:
			return
		case <-end.C:
			return
		}
	}
}

// event returns the event that replaces a part. JSON has no line breaks, which would end the
// data of an event.
func event(id string, html template.HTML) []byte {
	data, err := json.Marshal(map[string]string{"id": id, "html": string(html)})
	if err != nil {
		return nil // strings always encode
	}
	return fmt.Appendf(nil, "event: part\ndata: %s\n\n", data)
}
