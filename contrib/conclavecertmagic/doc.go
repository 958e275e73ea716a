// Package conclavecertmagic stores the certificates of CertMagic
// (github.com/caddyserver/certmagic) in a conclave group, so that the processes of a cluster
// obtain each certificate once and share it.
//
//	certmagic.Default.Storage = conclavecertmagic.New(node)
//
// A [Storage] keeps its files as keys of the group, below a prefix, and its locks as locks of the
// group. Reads are linearizable: each process sees what another one has stored. A lock whose
// holder has died is free after the TTL of its session; none has to be removed by hand. Waiters
// are served in FIFO order.
//
// What it does not promise:
//
//   - Secrecy. The private keys of certificates and accounts are values of keys: each member and
//     each client of the group can read them, and they are in data directories and backups as
//     they are. Configure TLS and [conclave.Config.VerifyPeer], and protect the disks.
//   - That a holder stops. CertMagic's interface has neither a loss signal nor a fence, and Store
//     does not know under which lock it is called: a process that was paused may store a certificate
//     that it obtained when another process held the lock. That costs a certificate, not
//     correctness: each file is replaced as a whole. CertMagic asks before each attempt to obtain
//     or renew a certificate ([Storage.RenewLockLease]), and learns of a loss there.
//     [Storage.Fence] and [Storage.Lost] are for programs that use the locks themselves.
//   - Size. A file has up to 512 KiB, a key with the prefix up to 512 bytes, and every member keeps
//     all of it in memory.
//
// Caddy loads storages as modules of its own kind; a Caddy module whose CertMagicStorage method
// returns a Storage is not part of this package, which does not depend on Caddy.
//
// The package is a module of its own: programs without it link no CertMagic.
package conclavecertmagic
