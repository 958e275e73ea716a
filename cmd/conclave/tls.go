package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// tlsFiles are the PEM files for mutual TLS.
type tlsFiles struct {
	cert, key, ca string
	serverName    string
	insecure      bool
}

func (f *tlsFiles) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.cert, "cert", "", "`file` of this process's certificate, and its chain")
	flags.StringVar(&f.key, "key", "", "`file` of its private key")
	flags.StringVar(&f.ca, "ca", "", "`file` of the authorities that issue the members' certificates")
	flags.StringVar(&f.serverName, "servername", "", "`name` in each member's certificate (default: the name or address that is dialed)")
	flags.BoolVar(&f.insecure, "insecure", false, "allow plaintext beyond loopback, on a network that is trusted")
}

// config returns nil without files.
func (f *tlsFiles) config() (*tls.Config, error) {
	if f.cert == "" && f.key == "" && f.ca == "" {
		return nil, nil
	}
	if f.cert == "" || f.key == "" || f.ca == "" {
		return nil, usageError{errors.New("--cert, --key and --ca belong together")}
	}
	if _, err := f.load(); err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca %s: no certificate in PEM", f.ca)
	}
	return &tls.Config{
		// A renewed certificate is used without a restart.
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.load() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.load() },
		RootCAs:              authorities,
		ServerName:           f.serverName,
	}, nil
}

func (f *tlsFiles) load() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--cert %s, --key %s: %w", f.cert, f.key, err)
	}
	return &c, nil
}
