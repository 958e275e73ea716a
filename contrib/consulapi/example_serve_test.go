package consulapi_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
)

func Example() {
	node, err := conclave.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close(context.Background())

	server := &http.Server{
		Addr:              "127.0.0.1:8500",
		Handler:           consulapi.Handler(node, nil),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go server.ListenAndServe()
	defer server.Close()
	fmt.Println("serving on", server.Addr)
	// Output:
	// serving on 127.0.0.1:8500
}
