//go:build !linux

package shmlink

import (
	"os"
	"sync/atomic"
	"time"
)

// createFile returns a file without a name.
func createFile(size int64) (*os.File, error) {
	f, err := os.CreateTemp("", "fabrictest-cable")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func checkFile(*os.File) error { return nil }

// lockPort does not check whether the port is open: there are no locks of open files.
func lockPort(*os.File, int) (*os.File, error) { return os.Open(os.DevNull) }

// Intervals between two looks at the word of a consumer that waits.
const (
	minPause = 20 * time.Microsecond
	maxPause = time.Millisecond
)

// wait blocks while the word has the value, for at most d.
func wait(word *atomic.Uint32, value uint32, d time.Duration) {
	began := time.Now()
	for pause := minPause; word.Load() == value && time.Since(began) < d; pause = min(2*pause, maxPause) {
		time.Sleep(min(pause, d))
	}
}

// wakeWaiter does nothing: wait sees the change of the word.
func wakeWaiter(*atomic.Uint32) {}
