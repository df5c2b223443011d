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
	tagData  = 1
	tagCount = 2
	tagDone  = 3

	maxWindow   = 64
	windowBytes = 16 << 20
	firstCount  = 16

	batchTrips   = 16
	firstBatches = 128
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
		if w.Size() != 2 || len(args) < 2 {
			return fmt.Errorf("%d ranks with arguments %q: want two ranks, and SLICE-MS KIND:BYTES [KIND:BYTES]", w.Size(), args)
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

// measurer is one rank's part of a measurement.
type measurer struct {
	*mpi.World
	size     int
	buf      []byte // a window of messages
	requests []*mpi.Request
	batches  []float64 // of rank 0: the seconds of each batch of round trips
}

// measure runs a measurement twice, with more and more repetitions until a run takes at least the
// time slice; earlier runs are the warm-up. Rank 0 prints the name and the seconds per message of the
// last run: of round trips by the median of the batches, which a pause of a rank does not change.
// Then each rank checks the contents of the last messages. Both ranks call it.
func measure(w *mpi.World, name string, slice time.Duration) error {
	kind, text, _ := strings.Cut(name, ":")
	size, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	inFlight := window(size)
	m := &measurer{World: w, size: size, buf: make([]byte, inFlight*size), requests: make([]*mpi.Request, inFlight)}
	var run func(count int) error
	var messages, used int // of each repetition: its messages, and the bytes of m.buf that it uses
	switch kind {
	case pingpong:
		run, messages, used = m.pingpong, 2*batchTrips, size
	case stream:
		run, messages, used = m.stream, inFlight, inFlight*size
	default:
		return fmt.Errorf("unknown kind: give %s or %s", pingpong, stream)
	}
	want := pattern(inFlight * size)
	if w.Rank() == 0 {
		copy(m.buf, want)
	}
	// Rank 0 chooses the count of each run; rank 1 runs until it receives a count of 0.
	count := firstCount
	if kind == pingpong {
		count = firstBatches
	}
	for isWarmUp := true; ; isWarmUp = false {
		if count, err = m.exchangeCount(count); err != nil || count == 0 {
			break
		}
		m.batches = m.batches[:0]
		began := w.Wtime()
		if err := run(count); err != nil {
			return err
		}
		took := w.Wtime() - began
		if w.Rank() > 0 {
			continue
		}
		if isWarmUp || took < slice {
			count = int(float64(count) * min(8, max(1, 1.5*slice.Seconds()/took.Seconds())))
			continue
		}
		seconds := took.Seconds() / float64(count)
		if len(m.batches) > 0 {
			seconds = perf.Median(m.batches)
		}
		fmt.Printf("%s %.12g\n", name, seconds/float64(messages))
		_, err = m.exchangeCount(0)
		break
	}
	if err == nil && !bytes.Equal(m.buf[:used], want[:used]) {
		err = fmt.Errorf("rank %d: a message arrived with wrong contents", w.Rank())
	}
	return err
}

// exchangeCount sends the number of repetitions from rank 0 to rank 1, and returns it on
// both. 0 ends the measurement.
func (m *measurer) exchangeCount(count int) (int, error) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(count))
	if m.Rank() == 0 {
		return count, m.Send(b, 1, tagCount)
	}
	_, err := m.Recv(b, 0, tagCount)
	return int(binary.LittleEndian.Uint64(b)), err
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
func (m *measurer) pingpong(batches int) (err error) {
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
func (m *measurer) stream(windows int) (err error) {
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
