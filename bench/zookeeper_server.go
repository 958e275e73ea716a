package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The jars of Debian's package. ZooKeeper's names those that it needs, except one that logs.
const (
	zooKeeperJar   = "/usr/share/java/zookeeper.jar"
	zooKeeperLog   = "/usr/share/java/slf4j-simple.jar"
	zooKeeperStart = time.Minute // for three JVMs and an election
)

// zooKeeperServer is a server of ZooKeeper, which is a process.
type zooKeeperServer struct {
	address string // for clients
	log     string // file
	stop    context.CancelFunc
	ended   chan struct{} // closed when the process has ended
	err     error         // what ended it
}

// findZooKeeper returns the path of java, if ZooKeeper is installed too.
func findZooKeeper() (java string, err error) {
	if java, err = exec.LookPath("java"); err == nil {
		_, err = os.Stat(zooKeeperJar)
	}
	if err != nil {
		return "", fmt.Errorf("zookeeper is not installed: %w: apt-get install zookeeper", err)
	}
	return java, nil
}

// startZooKeeperServer starts the server with number i. Of the addresses the first are for
// clients, the next for the leader's followers, the last for elections, one of each server.
func startZooKeeperServer(ctx context.Context, java, dir string, i int, addresses []url.URL) (*zooKeeperServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(i)), 0o600); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(config, []byte(zooKeeperConfig(dir, i, addresses)), 0o600); err != nil {
		return nil, err
	}
	s := &zooKeeperServer{address: addresses[i].Host, log: filepath.Join(dir, "log"), ended: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	ctx, s.stop = context.WithCancel(ctx)
	// The heap is that of ZooKeeper's own script. A killed JVM would leave its performance data in /tmp.
	cmd := exec.CommandContext(ctx, java, "-Xmx1000m", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", zooKeeperJar+":"+zooKeeperLog, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	go s.run(cmd, log)
	return s, nil
}

// zooKeeperConfig has the defaults, fsync among them, except that all clients may come from
// one address, and that no port for administrators is open.
func zooKeeperConfig(dir string, i int, addresses []url.URL) string {
	var b strings.Builder
	fmt.Fprintf(&b, `tickTime=2000
initLimit=10
syncLimit=5
dataDir=%s
clientPortAddress=%s
clientPort=%s
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
`, filepath.ToSlash(dir), addresses[i].Hostname(), addresses[i].Port())
	for j := range members {
		fmt.Fprintf(&b, "server.%d=%s:%s\n", j, addresses[members+j].Host, addresses[2*members+j].Port())
	}
	return b.String()
}

// run starts the process and waits for its end on one thread, with which the process would
// die: the kernel takes the thread that forks for the parent.
func (s *zooKeeperServer) run(cmd *exec.Cmd, log io.Closer) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.ended)
	s.err = errors.Join(cmd.Run(), log.Close())
}

// kill ends the process by SIGKILL.
func (s *zooKeeperServer) kill() {
	s.stop()
	<-s.ended
}

// mode asks the server what it is: leader, follower, or nothing while it serves no clients.
func (s *zooKeeperServer) mode(ctx context.Context) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	_, mode, _ := strings.Cut(string(answer), "\nMode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode, err
}

// await blocks until the server serves clients. Nothing signals that, so it asks again and
// again.
func (s *zooKeeperServer) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, zooKeeperStart, fmt.Errorf("serves no clients after %v", zooKeeperStart))
	defer cancel()
	for {
		if mode, err := s.mode(ctx); err == nil && mode != "" {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("zookeeper server: %w: its log ends: %s", context.Cause(ctx), s.lastLines())
		case <-s.ended:
			return fmt.Errorf("zookeeper server: %w: its log ends: %s", s.err, s.lastLines())
		}
	}
}

// lastLines returns the end of the log, which is removed with the directory.
func (s *zooKeeperServer) lastLines() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
