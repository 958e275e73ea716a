package conclavecertmagic_test

import (
	"context"
	"fmt"

	"github.com/caddyserver/certmagic"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/conclavecertmagic"
)

func ExampleNew() {
	ctx := context.Background()
	node, err := conclave.Open(ctx, nil) // a group of one; a program names its other members
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close(ctx)

	issuer, err := newAuthority() // a program leaves the default, which is Let's Encrypt
	if err != nil {
		fmt.Println(err)
		return
	}
	close(issuer.proceed)
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{
		Storage: conclavecertmagic.New(node),
		Issuers: []certmagic.Issuer{issuer},
		OCSP:    certmagic.OCSPConfig{DisableStapling: true},
	})
	if err := config.ManageSync(ctx, []string{"example.com"}); err != nil {
		fmt.Println(err)
		return
	}
	files, err := config.Storage.List(ctx, "certificates/authority/example.com", false)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range files {
		fmt.Println(f)
	}
	// Output:
	// certificates/authority/example.com/example.com.crt
	// certificates/authority/example.com/example.com.json
	// certificates/authority/example.com/example.com.key
}
