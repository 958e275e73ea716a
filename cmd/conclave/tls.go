package main

import "github.com/spf13/pflag"

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
