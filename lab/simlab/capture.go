package simlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// captureFile is what the capture of a scenario is called in its folder, before it
// is compressed.
const captureFile = "capture.pcapng"

// capture is the file that the packets of all hosts go to.
type capture struct {
	*recorder
	to   *pcaplink.Capture
	file *os.File
	path string // in the run's folder
}

// newCapture opens the file; nil where none is wanted.
func newCapture(s *scenarios.Scenario, opts *lab.Options) (*capture, error) {
	if !opts.Capture || opts.Dir == "" {
		return nil, nil
	}
	folder := opts.Folder(s, scenarios.Sim)
	if err := os.MkdirAll(filepath.Join(opts.Dir, folder), 0o755); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &capture{path: filepath.Join(folder, captureFile)}
	var err error
	if c.file, err = os.Create(filepath.Join(opts.Dir, c.path)); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c.to = pcaplink.NewCapture(c.file, pcaplink.Options{Comment: opts.Replay})
	c.recorder = newRecorder(c.to)
	return c, nil
}

// close completes the file and compresses it. One that could not be written whole
// is no evidence and goes.
func (c *capture) close() (*report.File, error) {
	if c == nil {
		return nil, nil
	}
	err := errors.Join(c.to.Close(), c.file.Close())
	var size int64
	if err == nil {
		_, size, err = pcaplink.Pack(c.file.Name(), c.comments())
	}
	if err != nil {
		_ = os.Remove(c.file.Name())
		return nil, fmt.Errorf("capture %s: %w", c.path, err)
	}
	return &report.File{Kind: "capture", Path: filepath.ToSlash(c.path) + pcaplink.Packed, Size: size}, nil
}
