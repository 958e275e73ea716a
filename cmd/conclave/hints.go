package main

import "strings"

// The library's errors name the settings of its configuration. Users of this program have flags for them.

// inFlags has a text of the library name flags. At each position the first pair that fits counts.
func inFlags(text string) string {
	return strings.NewReplacer(
		"set TLS, or Insecure if", "set --cert, --key and --ca, or --insecure if",
		"set TLS on every member and client", "set --cert, --key and --ca on every member and client",
		"set RootCAs in the client's TLS to", "set --ca to",
		"set RootCAs in Config.TLS to", "set --ca to",
		"set RootCAs, or ClientCAs, in Config.TLS to", "set --ca to",
		"set ServerName in the client's TLS", "set --servername",
		"set ServerName in Config.TLS", "set --servername",
		"the addresses of members that this client has", "--addr",
		"check the host and port in Addresses", "check the host and port in --addr",
		"call Leave there", "run conclave leave there",
		"set Advertise to", "set --advertise to",
		"set Bind to an address of this machine, and Advertise to", "set --bind to an address of this machine, and --advertise to",
		"set the same Config.Group", "set the same --group",
		"Config.Advertise", "--advertise",
		"Config.Join", "--join",
		"Join must be empty: set Expect to", "--join must be empty: set --expect to",
		"use that one, or change it with Resize", "set --of to that one",
		" or NoTTL, got", ", got",
		"invalid Addresses:", "invalid --addr:",
		"invalid Advertise:", "invalid --advertise:",
		"invalid Bind:", "invalid --bind:",
		"invalid Expect:", "invalid --expect:",
		"invalid Group:", "invalid --group:",
		"invalid Join:", "invalid --join:",
		"invalid Name:", "invalid --name:",
		"invalid RemoveAfter:", "invalid --remove-after:",
		"invalid ReplaceAfter:", "invalid --replace-after:",
		"invalid TTL:", "invalid --ttl:",
		"invalid Voters:", "invalid --voters:",
	).Replace(text)
}
