// Command standin takes the place of consul in HashiCorp's own tests, which run it as
//
//	consul agent -config-file <file>
//
// It opens a member in memory, and serves package consulapi at the address of that file. Of what
// package consulapi does not serve it answers only what the tests' infrastructure waits for before each
// test.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
)

// config is the part of Consul's configuration that the tests depend on.
type config struct {
	NodeName   string `json:"node_name"`
	Datacenter string `json:"datacenter"`
	Ports      struct {
		HTTP   int `json:"http"`
		Server int `json:"server"`
	} `json:"ports"`
	Addresses struct {
		HTTP string `json:"http"` // a Unix socket, or none
	} `json:"addresses"`
}

func main() {
	if slices.Equal(os.Args[1:], []string{"version", "-format=json"}) {
		fmt.Println(`{"Version": "1.22.0"}`) // of the server with which this client was released
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stand-in for consul:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 || args[0] != "agent" || args[1] != "-config-file" {
		return fmt.Errorf("want agent -config-file <file>, got %q", args)
	}
	text, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	node, err := conclave.Open(ctx, &conclave.Config{Name: c.NodeName, Bind: "127.0.0.1:" + strconv.Itoa(c.Ports.Server)})
	if err != nil {
		return err
	}
	defer node.Close(context.Background())
	l, err := listen(&c)
	if err != nil {
		return err
	}
	h := consulapi.Handler(node, &consulapi.Options{
		Datacenter: c.Datacenter,
		Authorize:  func(string, consulapi.Verb, string) error { return nil }, // some tests put a proxy before it
	})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/agent/connect/ca/roots" {
			_, _ = io.WriteString(w, `{"ActiveRootID": "none", "TrustDomain": "none", "Roots": [{"ID": "none"}]}`)
			return
		}
		h.ServeHTTP(w, r)
	})}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func listen(c *config) (net.Listener, error) {
	if path, ok := strings.CutPrefix(c.Addresses.HTTP, "unix://"); ok {
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(c.Ports.HTTP))
}
