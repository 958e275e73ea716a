package slots

// What has been stored is loaded in this order: what is remembered, by position, then the numbers of permits. Each
// function reports whether what it adds fits with what is there.

// Load adds what is remembered of a number.
func (x *Numbers) Load(v *Space, f *Former) bool {
	if f.Session == "" || f.Position == 0 || x.formerOf(f.Number) != nil {
		return false
	}
	if last := v.ages.Last(); last != nil && f.Position <= last.Position {
		return false
	}
	x.add(v, f)
	return x.former.ages.Len <= v.MostEach && v.bytes <= v.MostBytes
}

// LoadTaken adds the numbers of permits: that a session has, or that are under a lock-delay.
func (x *Numbers) LoadTaken(v *Space, numbers []uint32, delayed bool) bool {
	for _, n := range numbers {
		f := x.formerOf(n)
		if x.taken.has(n) || f != nil && !delayed {
			return false
		}
		x.taken.add(n, v)
		if f != nil {
			f.delayed = true
			x.former.byName.Delete(f)
		}
	}
	return true
}
