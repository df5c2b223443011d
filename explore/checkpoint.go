package explore

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// checkpointInterval is the time between checkpoints.
const checkpointInterval = time.Minute

// checkpoint is the first value of a checkpoint file. The tables of the visited states follow.
type checkpoint struct {
	Version string
	Initial [16]byte // fingerprint of the initial state
	Counts  Counts
	Rest    []savedWork
}

const checkpointVersion = "fabrictest machine exploration 1"

// savedWork is work in a file.
type savedWork struct {
	Path  Path
	Next  int
	Inner Path
}

// save writes the checkpoint file. It removes the file when nothing is left, and keeps the last one
// after a failure, which the next exploration finds again.
func (s *search) save(rest []work) error {
	switch {
	case s.Checkpoint == "" || s.failure != nil:
		return nil
	case len(rest) == 0:
		if err := os.Remove(s.Checkpoint); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	c := checkpoint{Version: checkpointVersion, Initial: s.initial().Fingerprint(), Counts: s.counts()}
	for _, w := range rest {
		c.Rest = append(c.Rest, savedWork{appendTrail(nil, w.trail), w.next, w.inner})
	}
	temp := s.Checkpoint + ".new"
	if err := s.write(temp, c); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return os.Rename(temp, s.Checkpoint)
}

func (s *search) write(name string, c checkpoint) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	enc := gob.NewEncoder(w)
	if err = enc.Encode(c); err != nil {
		return err
	}
	for i := range s.visited.shards {
		if err = enc.Encode(s.visited.shards[i].slots); err != nil {
			return err
		}
	}
	return w.Flush()
}

// load reads the checkpoint file, if there is one.
func (s *search) load(initial [16]byte) (rest []work, err error) {
	if s.Checkpoint == "" {
		return nil, nil
	}
	f, err := os.Open(s.Checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	dec := gob.NewDecoder(bufio.NewReader(f))
	var c checkpoint
	if err = dec.Decode(&c); err != nil || c.Version != checkpointVersion {
		return nil, fmt.Errorf("%s is no checkpoint of this version: remove it to begin anew (%w)", s.Checkpoint, err)
	}
	if c.Initial != initial {
		return nil, fmt.Errorf("%s is of another machine, or of another version of it: remove it to begin anew", s.Checkpoint)
	}
	for i := range s.visited.shards {
		sh := &s.visited.shards[i]
		if err = dec.Decode(&sh.slots); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Checkpoint, err)
		}
		for _, slot := range sh.slots {
			if slot[1] != 0 {
				sh.n++
			}
		}
		s.visited.n.Add(int64(sh.n))
	}
	s.runs.Store(int64(c.Counts.Runs))
	s.edges.Store(int64(c.Counts.Edges))
	s.deepest.Store(int64(c.Counts.Deepest))
	for _, saved := range c.Rest {
		m := s.initial()
		trail, err := replay(m, saved.Path, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Checkpoint, err)
		}
		if saved.Next < 0 {
			return nil, fmt.Errorf("%s: negative step", s.Checkpoint)
		}
		f := frame{steps: m.Enabled(nil), next: saved.Next, inner: saved.Inner}
		if s.clones {
			f.m = m
		}
		rest = append(rest, work{trail, f})
	}
	return rest, nil
}
