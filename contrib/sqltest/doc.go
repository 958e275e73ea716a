// Package sqltest runs fencing.SQL against real servers of PostgreSQL and MariaDB, and against
// SQLite. It is a module of its own, so that no program that uses the library links a driver.
//
// Each test starts a private server in a temporary directory, with a Unix socket only, and stops
// it. A test is skipped where its server is not installed.
package sqltest
