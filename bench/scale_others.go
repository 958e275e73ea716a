package main

import (
	"fmt"
	"os"
	"time"
)

// busyTime returns how long the processors of the machine have been busy since it started, and, of a virtual one, were not given to it.
// Only Linux has it.
func busyTime() (busy time.Duration, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	return busyIn(string(text))
}

func busyIn(text string) (busy time.Duration, ok bool) {
	var user, nice, system, idle, waiting, irq, softIRQ, stolen int64 // in 1/100 s on each architecture
	if _, err := fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &waiting, &irq, &softIRQ, &stolen); err != nil {
		return 0, false
	}
	return time.Duration(user+nice+system+irq+softIRQ+stolen) * 10 * time.Millisecond, true
}

// others measures how many processors the other programs of the machine use. The result is 0 where the system does not count it.
type others struct {
	began time.Time
	busy  time.Duration
	ok    bool
}

func watchOthers() others {
	busy, ok := busyTime()
	return others{time.Now(), busy, ok}
}

// since returns the mean since then, without the time that the members have used meanwhile.
func (o others) since(members time.Duration) float64 {
	busy, ok := busyTime()
	if !ok || !o.ok {
		return 0
	}
	return max(0, (busy-o.busy-members).Seconds()/time.Since(o.began).Seconds())
}
