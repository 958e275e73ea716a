package conclaveprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclaveprom"
)

func Example() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	registry := prometheus.NewRegistry()
	registry.MustRegister(conclaveprom.New(node))

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "conclave_has_leader" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: conclave_has_leader 1
}
