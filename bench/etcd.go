package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// etcdGroup is three members of etcd, each with a client in this process, which calls its
// member's functions without a connection.
type etcdGroup struct {
	modes
	servers [members]*embed.Etcd
	clients [members]*clientv3.Client
}

func startEtcd(ctx context.Context, dir string) (group, error) {
	urls, err := freeAddresses(2 * members)
	if err != nil {
		return nil, err
	}
	var initial []string
	for i := range members {
		initial = append(initial, fmt.Sprintf("m%d=%s", i, urls[i].String()))
	}
	g := new(etcdGroup)
	var errs [members]error
	var wg sync.WaitGroup
	for i := range members {
		cfg := embed.NewConfig()
		cfg.Name = fmt.Sprint("m", i)
		cfg.Dir = filepath.Join(dir, cfg.Name)
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{urls[i]}, []url.URL{urls[i]}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{urls[members+i]}, []url.URL{urls[members+i]}
		cfg.InitialCluster = strings.Join(initial, ",")
		cfg.LogLevel = "panic"
		wg.Go(func() { errs[i] = g.start(ctx, i, cfg) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// freeAddresses finds addresses for listeners that a peer opens later by itself. Their ports
// are below those that the system gives to outgoing connections, which would take them
// meanwhile.
func freeAddresses(n int) ([]url.URL, error) {
	var urls []url.URL
	for port := 10_000 + rand.IntN(10_000); len(urls) < n; port++ {
		if port >= 32_768 {
			return nil, errors.New("no free ports below 32768")
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		urls = append(urls, url.URL{Scheme: "http", Host: l.Addr().String()})
		l.Close()
	}
	return urls, nil
}

func (g *etcdGroup) start(ctx context.Context, i int, cfg *embed.Config) error {
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	g.servers[i] = e
	select {
	case <-e.Server.ReadyNotify():
		g.clients[i] = v3client.New(e.Server)
		return nil
	case err := <-e.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *etcdGroup) leader(context.Context) (int, error) {
	for i, e := range g.servers {
		if e != nil && e.Server.Leader() == e.Server.MemberID() {
			return i, nil
		}
	}
	return 0, errors.New("no leader")
}

func (g *etcdGroup) lock(_ context.Context, member int, name string, _ bool) (lock, error) {
	// A session for each caller: two mutexes of one session both hold (etcd#11360).
	s, err := concurrency.NewSession(g.clients[member], concurrency.WithTTL(10))
	if err != nil {
		return nil, err
	}
	return etcdLock{concurrency.NewMutex(s, "/"+name)}, nil
}

type etcdLock struct{ *concurrency.Mutex }

func (l etcdLock) lock(ctx context.Context) error   { return l.Lock(ctx) }
func (l etcdLock) unlock(ctx context.Context) error { return l.Unlock(ctx) }

func (g *etcdGroup) put(ctx context.Context, member int, key string, value []byte) error {
	_, err := g.clients[member].Put(ctx, key, string(value))
	return err
}

func (g *etcdGroup) get(ctx context.Context, member int, key string) error {
	_, err := g.clients[member].Get(ctx, key)
	return err
}

func (g *etcdGroup) watch(ctx context.Context, member int, key string, seen func(string)) error {
	events := g.clients[member].Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithCreatedNotify())
	select {
	case <-events: // the watch is established
	case <-ctx.Done():
		return ctx.Err()
	}
	go func() {
		for r := range events {
			for _, e := range r.Events {
				seen(string(e.Kv.Value))
			}
		}
	}()
	return nil
}

func (g *etcdGroup) sessions(_ context.Context, member, n int) error {
	for range n {
		if _, err := concurrency.NewSession(g.clients[member], concurrency.WithTTL(10)); err != nil {
			return err
		}
	}
	return nil
}

func (g *etcdGroup) kill(member int) {
	g.servers[member].Server.HardStop()
	g.servers[member].Close()
	g.servers[member] = nil
}

func (g *etcdGroup) close() {
	var wg sync.WaitGroup
	for i, e := range g.servers {
		if e != nil {
			wg.Go(func() {
				e.Server.HardStop()
				e.Close()
				if g.clients[i] != nil {
					_ = g.clients[i].Close()
				}
			})
		}
	}
	wg.Wait()
}
