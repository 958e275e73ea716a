package storage

// DiskBytes returns the size of the database's files, those included that are kept for
// reuse. It may be called on any goroutine.
func (s *Store) DiskBytes() (uint64, error) {
	db, unpin, err := s.Pin()
	if err != nil {
		return 0, err
	}
	defer unpin()
	return db.Metrics().DiskSpaceUsage(), nil
}
