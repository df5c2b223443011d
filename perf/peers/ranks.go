package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	_ "github.com/fabrictest/fabrictest/lab/mpihost" // the launcher
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/perf"
)

// These must be equal to those in c/ranks.c.
const (
	tagData = 1
	tagDone = 2

	maxWindow   = 64
	windowBytes = 16 << 20
	firstCount  = 16

	batchTrips   = 16
	firstBatches = 128

	collectiveBatches = 8
)

// window returns the number of messages of a size that are in flight: windowBytes, but
// from 4 to maxWindow messages.
func window(size int) int { return min(maxWindow, max(4, windowBytes/max(size, 1))) }

// rankMain is the main function of a rank. Its arguments and output are those of c/ranks.c.
func rankMain(args []string) {
	mpi.Main(func(w *mpi.World) error {
		if dir := os.Getenv(profileVar); dir != "" {
			stop, err := startProfile(dir, w.Rank())
			if err != nil {
				return err
			}
			defer stop()
		}
		if len(args) < 2 {
			return fmt.Errorf("arguments %q: want SLICE-MS KIND:BYTES [KIND:BYTES]", args)
		}
		ms, err := strconv.ParseFloat(args[0], 64)
		if err != nil {
			return err
		}
		for _, name := range args[1:] {
			if err := measure(w, name, time.Duration(ms*float64(time.Millisecond))); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// profileVar is the environment variable with the directory for CPU profiles.
const profileVar = "FABRICTEST_PEERS_PROFILE"

// startProfile starts a CPU profile, which stop writes to a file in dir.
func startProfile(dir string, rank int) (stop func(), err error) {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.%d.prof", rank, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}, nil
}

// benchmark is one rank's part of a measurement.
type benchmark struct {
	firstCount int
	run        func(count int) error // a number of repetitions
	// seconds returns the time of a message or operation in the last run, which took a time. All
	// ranks call it; only the result of rank 0 is used.
	seconds func(took time.Duration, count int) (float64, error)
	check   func() error // of the contents of messages
}

// measure runs a measurement twice, with more and more repetitions until a run takes at least the
// time slice; earlier runs are the warm-up. Rank 0 prints the name and the seconds of the last run.
// Then each rank checks contents. All ranks call it.
func measure(w *mpi.World, name string, slice time.Duration) error {
	kind, text, _ := strings.Cut(name, ":")
	size, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	newBenchmark := newCollective
	if isPairKind(kind) {
		newBenchmark = newPair
	}
	b, err := newBenchmark(w, kind, size)
	if err != nil {
		return err
	}
	// Rank 0 chooses the count of each run; the others run until they receive a count of 0.
	count := b.firstCount
	for isWarmUp := true; ; isWarmUp = false {
		if count, err = exchangeCount(w, count); err != nil {
			return err
		}
		if count == 0 {
			return b.check()
		}
		began := w.Wtime()
		if err := b.run(count); err != nil {
			return err
		}
		took := w.Wtime() - began
		seconds, err := b.seconds(took, count)
		if err != nil {
			return err
		}
		switch {
		case w.Rank() > 0:
		case isWarmUp || took < slice:
			count = int(float64(count) * min(8, max(1, 1.5*slice.Seconds()/took.Seconds())))
		default:
			fmt.Printf("%s %.12g\n", name, seconds)
			count = 0
		}
	}
}

// exchangeCount sends the number of repetitions from rank 0 to all ranks. 0 ends the measurement.
func exchangeCount(w *mpi.World, count int) (int, error) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(count))
	err := w.Bcast(b, 0)
	return int(binary.LittleEndian.Uint64(b)), err
}

// pair is one rank's part of a measurement of two ranks.
type pair struct {
	*mpi.World
	size     int
	buf      []byte // a window of messages
	requests []*mpi.Request
	batches  []float64 // of rank 0: the seconds of each batch of round trips
}

// newPair returns a benchmark of messages between two ranks. The time of a message is the mean, but
// that of a round trip the median of batches, which a pause of a rank does not change.
func newPair(w *mpi.World, kind string, size int) (*benchmark, error) {
	if w.Size() != 2 {
		return nil, fmt.Errorf("%d ranks: want two", w.Size())
	}
	inFlight := window(size)
	m := &pair{World: w, size: size, buf: make([]byte, inFlight*size), requests: make([]*mpi.Request, inFlight)}
	want := pattern(inFlight * size)
	if w.Rank() == 0 {
		copy(m.buf, want)
	}
	used := inFlight * size // bytes of m.buf
	b := &benchmark{firstCount, m.stream, func(took time.Duration, count int) (float64, error) {
		return took.Seconds() / float64(count*inFlight), nil
	}, func() error {
		if !bytes.Equal(m.buf[:used], want[:used]) {
			return fmt.Errorf("rank %d: a message arrived with wrong contents", w.Rank())
		}
		return nil
	}}
	if kind == pingpong {
		used, b.firstCount, b.run = size, firstBatches, m.pingpong
		b.seconds = func(time.Duration, int) (float64, error) { return perf.Median(m.batches) / (2 * batchTrips), nil }
	}
	return b, nil
}

// pattern returns n bytes in which neighbouring bytes and messages differ.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(31*i + 7*(i>>8) + 1)
	}
	return b
}

// pingpong sends a message from rank 0 to rank 1 and back, for a number of batches of round trips.
func (m *pair) pingpong(batches int) (err error) {
	m.batches = m.batches[:0]
	message := m.buf[:m.size]
	for range batches {
		began := m.Wtime()
		for i := range 2 * batchTrips {
			sends := i%2 == m.Rank()
			if sends {
				err = m.Send(message, 1-m.Rank(), tagData)
			} else {
				_, err = m.Recv(message, 1-m.Rank(), tagData)
			}
			if err != nil {
				return err
			}
		}
		if m.Rank() == 0 {
			m.batches = append(m.batches, (m.Wtime() - began).Seconds())
		}
	}
	return nil
}

// stream sends windows of messages from rank 0 to rank 1. An empty message acknowledges a window.
func (m *pair) stream(windows int) (err error) {
	for range windows {
		for k := range m.requests {
			message := m.buf[k*m.size:][:m.size]
			if m.Rank() == 0 {
				m.requests[k], err = m.Isend(message, 1, tagData)
			} else {
				m.requests[k], err = m.Irecv(message, 0, tagData)
			}
			if err != nil {
				return err
			}
		}
		if _, err := mpi.WaitAll(m.requests); err != nil {
			return err
		}
		if m.Rank() == 0 {
			_, err = m.Recv(nil, 1, tagDone)
		} else {
			err = m.Send(nil, 0, tagDone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
