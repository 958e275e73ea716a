package conclavehttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/grouptest"
)

// Clients that never finish a form do not keep others from the page, and are disconnected.
func TestConsole_SlowForms(t *testing.T) {
	t.Parallel()
	site := serve(t, grouptest.Alone(t), nil)
	address := strings.TrimPrefix(strings.TrimSuffix(site.url, "/ops/console/"), "http://")
	var replies []*bufio.Reader
	for range 70 {
		c, err := net.Dial("tcp", address)
		grouptest.Must(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /ops/console/act HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", address)
		grouptest.Must(t, err)
		reply := bufio.NewReader(c)
		line, err := reply.ReadString('\n') // the handler reads
		grouptest.Must(t, err)
		want(t, line, "100 Continue")
		replies = append(replies, reply)
	}
	if w, body := site.get("style.css"); w.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", w.Status, body)
	}
	for _, r := range replies {
		_, err := io.ReadAll(r)
		grouptest.Must(t, err)
	}
}

// Clients that do not read what they asked for do not keep others from the page.
func TestConsole_SlowReadersOfPages(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"a page": "/style.css", "an error": "/?show=" + strings.Repeat("x", 10_000)} {
		t.Run(name, func(t *testing.T) { slowReaders(t, path) })
	}
}

func slowReaders(t *testing.T, path string) {
	t.Parallel()
	site := serve(t, grouptest.Alone(t), nil)
	listener := pipes{make(chan net.Conn)}
	server := &http.Server{Handler: site.console}
	ended := make(chan struct{})
	go func() { _ = server.Serve(listener); close(ended) }()
	defer func() { close(listener.accept); <-ended; server.Close() }()
	for range 64 {
		client, conn := net.Pipe()
		defer client.Close()
		listener.accept <- conn
		_, err := io.WriteString(client, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		grouptest.Must(t, err)
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); ; <-again.C {
		w, body := site.get("style.css")
		if w.StatusCode == http.StatusOK && time.Since(began) > time.Second {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%s: %s", w.Status, body)
		}
	}
}
