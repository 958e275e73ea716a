package conclavehttp_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
)

func ExampleHealth() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	mux := http.NewServeMux()
	health := conclavehttp.Health(node)
	mux.Handle("/livez", health)
	mux.Handle("/readyz", health)

	probe := httptest.NewRecorder()
	mux.ServeHTTP(probe, httptest.NewRequest("GET", "/readyz?verbose", nil))
	fmt.Println(probe.Code)
	fmt.Print(probe.Body)
	// Output:
	// 200
	// [+]node ok
	// [+]loop ok
	// [+]shutdown ok
	// [+]member ok
	// [+]leader ok
	// [+]caught-up ok
	// [+]progress ok
	// [+]resources ok
	// [+]disk ok
	// [+]groups ok
	// readyz check passed
}

func ExampleConsole() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	console := conclavehttp.Console(node, &conclavehttp.ConsoleOptions{
		Audit: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
		Authorize: func(r *http.Request, act conclavehttp.Act) (actor string, err error) {
			user, password, _ := r.BasicAuth()
			switch {
			case password != os.Getenv("CONSOLE_PASSWORD") || password == "":
				return user, errors.New("log in first")
			case act.Kind != conclavehttp.ActView && user != "operator":
				return user, errors.New("only operators may do this")
			}
			return user, nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", console))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(console.Close)

	visit := httptest.NewRecorder()
	mux.ServeHTTP(visit, httptest.NewRequest("GET", "/console/", nil))
	fmt.Print(visit.Code, " ", visit.Body)
	// Output:
	// 403 log in first
}
