package cluster

// What a small member gives up is room for bursts: tables in memory that absorb writes while a
// flush is slow, and entries that spare a lagging member a snapshot.
const (
	smallTable   = 1 << 20 // bytes; a log takes a tenth more
	smallEntries = 2000
)

// tableBytes returns the size of the database's tables in memory; 0: the default.
func (c *Config) tableBytes() uint64 {
	if c.Small {
		return smallTable
	}
	return 0
}

// keepEntries returns how many applied entries the member keeps in its log; 0: the default.
func (c *Config) keepEntries() uint64 {
	if c.Small {
		return smallEntries
	}
	return 0
}
