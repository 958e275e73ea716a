//go:build unix

package patronitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// size is the number of agents, and of nodes of the database. Node i uses agent i.
const size = 3

// cluster is the agents and the nodes of a database.
type cluster struct {
	t        *testing.T
	programs programs
	dir      string
	ttl      int // seconds, as in Patroni's settings
	ports    struct{ member, consul, rest, postgres [size]int }
	agents   [size]*process
	nodes    [size]*process
	writers  *writers
}

// begin starts everything and waits until a node accepts writes, and the others follow it.
func begin(t *testing.T, p programs, ttl int) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "patroni") // t.TempDir is closed to other accounts, and too long for a socket
	must(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			must(t, os.RemoveAll(dir))
		}
	})
	must(t, os.Chown(dir, int(p.uid), int(p.gid)))
	c := &cluster{t: t, programs: p, dir: dir, ttl: ttl}
	free := ports(t, 4*size)
	for i := range size {
		c.ports.member[i], c.ports.consul[i], c.ports.rest[i], c.ports.postgres[i] = free[4*i], free[4*i+1], free[4*i+2], free[4*i+3]
	}
	for i := range size {
		c.startAgent(i)
	}
	for i := range size {
		c.configure(i)
		c.startNode(i)
	}
	t.Cleanup(c.logs)
	t.Cleanup(c.stop)
	c.writers = write(t, c.ports.postgres)
	eventually(t, "a primary with two replicas", 10*time.Minute, func(ctx context.Context) bool { return c.replicas(ctx) == size-1 })
	return c
}

// startAgent starts an agent, and waits until it serves.
func (c *cluster) startAgent(i int) {
	c.t.Helper()
	var join []string
	for _, port := range c.ports.member {
		join = append(join, addr(port))
	}
	c.agents[i] = start(c.t, c.path("agent", i, ".log"), exec.Command(c.programs.conclave, "agent",
		"--dir", c.path("agent", i, ""), "--bind", addr(c.ports.member[i]), "--join", strings.Join(join, ","), "--expect", strconv.Itoa(size),
		"--http", "none", "--consul-http", addr(c.ports.consul[i]), "--name", fmt.Sprint("agent", i)))
}

func (c *cluster) path(kind string, i int, suffix string) string {
	return filepath.Join(c.dir, fmt.Sprint(kind, i, suffix))
}

// configure writes the settings of a node: Patroni's defaults, but for the TTL and what a small machine needs.
func (c *cluster) configure(i int) {
	c.t.Helper()
	pause := 10 // Patroni wants a TTL of at least this and twice the time for retries
	if c.ttl < 30 {
		pause = c.ttl / 3
	}
	text := fmt.Sprintf(`scope: demo
name: node%[1]d
restapi: {listen: "%[2]s", connect_address: "%[2]s"}
consul: {host: "%[3]s", register_service: false}
bootstrap:
  dcs:
    ttl: %[4]d
    loop_wait: %[5]d
    retry_timeout: %[5]d
    maximum_lag_on_failover: 1048576
    postgresql: {use_pg_rewind: true, parameters: {max_connections: 20, shared_buffers: 16MB, wal_keep_size: 64MB}}
  initdb: [{encoding: UTF8}, data-checksums]
postgresql:
  listen: "%[6]s"
  connect_address: "%[6]s"
  data_dir: %[7]s
  bin_dir: %[8]s
  pgpass: %[9]s
  authentication:
    replication: {username: repl, password: repl}
    superuser: {username: postgres, password: secret}
    rewind: {username: rewind, password: rewind}
  parameters: {unix_socket_directories: "%[10]s"}
  pg_hba: ["host all all 127.0.0.1/32 md5", "host replication repl 127.0.0.1/32 md5", "local all all trust"]
`, i, addr(c.ports.rest[i]), addr(c.ports.consul[i]), c.ttl, pause, addr(c.ports.postgres[i]), c.path("data", i, ""), c.programs.postgres,
		c.path("pgpass", i, ""), c.dir)
	must(c.t, os.WriteFile(c.path("node", i, ".yml"), []byte(text), 0o644))
}

func (c *cluster) startNode(i int) {
	c.t.Helper()
	cmd := exec.Command(c.programs.python, c.programs.patroni, c.path("node", i, ".yml"))
	cmd.Env = []string{"LC_ALL=C.UTF-8", "PATH=" + c.programs.postgres + ":/usr/bin:/bin"}
	cmd.Dir = c.dir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.programs.uid, Gid: c.programs.gid}}
	}
	c.nodes[i] = start(c.t, c.path("node", i, ".log"), cmd)
}

// killNode kills Patroni and PostgreSQL of a node, as the loss of its machine does: PostgreSQL alone goes on as a primary,
// for which Patroni has its watchdog.
func (c *cluster) killNode(i int) {
	c.nodes[i].end(syscall.SIGKILL)
	c.killPostgres(i)
}

func (c *cluster) killPostgres(i int) {
	text, err := os.ReadFile(filepath.Join(c.path("data", i, ""), "postmaster.pid"))
	if err != nil {
		return
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (c *cluster) stop() {
	for i := range size {
		c.killNode(i)
	}
}

// logs prints the end of each log of a test that has failed.
func (c *cluster) logs() {
	if !c.t.Failed() {
		return
	}
	for i := range size {
		for _, kind := range []string{"agent", "node"} {
			text, _ := os.ReadFile(c.path(kind, i, ".log"))
			c.t.Logf("%s%d, the rest in %s:\n%s", kind, i, c.dir, text[max(0, len(text)-4000):])
		}
	}
}

// request sends a request to Patroni's REST API.
func (c *cluster) request(ctx context.Context, i int, method, path string, body any) (status int, answer map[string]any) {
	text, err := json.Marshal(body)
	must(c.t, err)
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr(c.ports.rest[i])+path, bytes.NewReader(text))
	must(c.t, err)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil
	}
	defer w.Body.Close()
	_ = json.NewDecoder(w.Body).Decode(&answer) // some answers are text
	return w.StatusCode, answer
}

// primary returns the node that leads according to Patroni, and -1 if none does.
func (c *cluster) primary(ctx context.Context) int {
	for i := range size {
		if status, _ := c.request(ctx, i, http.MethodGet, "/primary", nil); status == http.StatusOK {
			return i
		}
	}
	return -1
}

// replicas counts the nodes that receive what the primary writes. Patroni calls a node a replica before that, and while
// one that is ahead answers, it promotes no other.
func (c *cluster) replicas(ctx context.Context) (n int) {
	p := c.primary(ctx)
	if p < 0 {
		return 0
	}
	conn, err := pgx.Connect(ctx, address(c.ports.postgres[p]))
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	// What a replica copies at first it streams as pg_basebackup.
	row := conn.QueryRow(ctx, "select count(*) from pg_stat_replication where state = 'streaming' and application_name <> 'pg_basebackup'")
	if row.Scan(&n) != nil {
		return 0
	}
	return n
}
