//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// isolateMounts makes the mounts of this process its own, so that none of them is
// seen outside, and shows it its own processes and namespaces.
func isolateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("chaos", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return os.MkdirAll("/run/netns", 0o755) // where ip keeps names
}

// network is a bridge in the tool's own namespace, with a namespace for each
// member behind it.
type network struct{ hosts int }

const (
	bridge = "chaos0"
	subnet = "10.99.0."
	port   = 7000
)

func newNetwork(hosts int) (*network, error) {
	w := &network{hosts: hosts}
	commands := []string{
		"link set lo up",
		"link add " + bridge + " type bridge",
		"link set " + bridge + " up",
	}
	for i := range hosts {
		commands = append(commands,
			"netns add "+w.namespace(i),
			fmt.Sprintf("link add port%d type veth peer name eth0 netns %s", i, w.namespace(i)),
			fmt.Sprintf("link set port%d master %s up", i, bridge),
			fmt.Sprintf("-n %s addr add %s/24 dev eth0", w.namespace(i), w.host(i)),
			fmt.Sprintf("-n %s link set lo up", w.namespace(i)),
			fmt.Sprintf("-n %s link set eth0 up", w.namespace(i)),
		)
	}
	for _, c := range commands {
		if err := run("", "ip", strings.Fields(c)...); err != nil {
			return nil, err
		}
	}
	for i := range hosts {
		if err := w.filter(i, "add table inet chaos\nadd chain inet chaos in { type filter hook input priority 0; policy accept; }\n"); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *network) namespace(i int) string { return fmt.Sprintf("m%d", i+1) }
func (w *network) host(i int) string      { return fmt.Sprintf("%s%d", subnet, i+1) }
func (w *network) address(i int) string   { return fmt.Sprintf("%s:%d", w.host(i), port) }

// command returns a command that runs in the namespace of a member, as the process
// that is started, not as its child.
func (w *network) command(i int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", w.namespace(i), name}, args...)...)
}

// filter runs a script of nft in the namespace of a member.
func (w *network) filter(i int, script string) error {
	return run(script, "ip", "netns", "exec", w.namespace(i), "nft", "-f", "-")
}

// rules replaces the rules for what a member receives.
func (w *network) rules(i int, rules ...string) error {
	script := "flush chain inet chaos in\n"
	for _, r := range rules {
		script += "add rule inet chaos in " + r + "\n"
	}
	return w.filter(i, script)
}

// Rules for received packets.

func dropFrom(hosts []string) string {
	return "ip saddr { " + strings.Join(hosts, ", ") + " } drop"
}

// dropDialed drops what a host sends on connections that it has dialed, as a firewall does that admits the answers to what is dialed
// behind it.
func dropDialed(host string) string { return fmt.Sprintf("ip saddr %s tcp dport %d drop", host, port) }

func dropPercent(percent int) string {
	return fmt.Sprintf("ip protocol tcp numgen random mod 100 < %d drop", percent)
}

// resetEstablished resets every connection on which a packet arrives. New ones pass
// their first packet only. A reset is not answered by one.
func resetEstablished() string { return "tcp flags & (syn | rst) == 0 reject with tcp reset" }

// partition has the members receive only what reaches tells, for sender and receiver.
func (w *network) partition(reaches func(from, to int) bool) error {
	for to := range w.hosts {
		var unreachable []string
		for from := range w.hosts {
			if from != to && !reaches(from, to) {
				unreachable = append(unreachable, w.host(from))
			}
		}
		var rules []string
		if len(unreachable) > 0 {
			rules = append(rules, dropFrom(unreachable))
		}
		if err := w.rules(to, rules...); err != nil {
			return err
		}
	}
	return nil
}

func (w *network) heal() error {
	return w.partition(func(int, int) bool { return true })
}

// run runs a command to its end. Its error contains what the command printed.
func run(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
