package conclavehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

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
	// readyz check passed
}
