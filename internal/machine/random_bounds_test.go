package machine

// Smaller bounds than those of the machine, so that random logs reach them.

// split sets how many things one entry releases at most.
func (r *rig) split(n int) { r.straight.split, r.loaded.split, r.model.Split = n, n, n }

// retain sets how many bytes of outcomes are kept at most.
func (r *rig) retain(most, all, least int) {
	for _, m := range []*Machine{r.straight, r.loaded} {
		m.retention.most, m.retention.all, m.retention.least = most, all, least
	}
	r.model.MostOutcomes, r.model.AllOutcomes, r.model.LeastOutcomes = most, all, least
}

// remember sets how many numbers of permits are remembered at most, of each semaphore and in bytes.
func (r *rig) remember(each, bytes int) {
	for _, m := range []*Machine{r.straight, r.loaded} {
		m.semaphores.numbers.MostEach, m.semaphores.numbers.MostBytes = each, bytes
	}
	r.model.MostFormer, r.model.MostFormerBytes = each, bytes
}

// search sets how many waiters and shares a search for a deadlock looks at, and those of one entry.
func (r *rig) search(each, all int) {
	for _, m := range []*Machine{r.straight, r.loaded} {
		m.searched.each, m.searched.all = each, all
	}
	r.model.MostSearched, r.model.MostAllSearched = each, all
}

// touch sets how many names the sets have that the commands of one entry take or release, and how many keys its prefixes
// find before others are refused.
func (r *rig) touch(most int) {
	r.straight.touched.most, r.loaded.touched.most, r.model.MostTouched = most, most, most
	r.straight.prefixed.most, r.loaded.prefixed.most, r.model.MostPrefixed = most/4, most/4, most/4
}
