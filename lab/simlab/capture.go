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

// captureFile is the name of the capture before compression.
const captureFile = "capture.pcapng"

// capture is the capture file of all hosts.
type capture struct {
	*recorder
	to   *pcaplink.Capture
	file *os.File
	path string // relative to Options.Dir
}

// newCapture creates the file; nil if no capture is wanted.
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

// close completes and compresses the file. It removes a file with errors.
func (c *capture) close() (*report.File, error) {
	if c == nil {
		return nil, nil
	}
	err := errors.Join(c.to.Close(), c.file.Close())
	var size int64
	if err == nil {
		_, size, err = pcaplink.Compress(c.file.Name(), c.comments())
	}
	if err != nil {
		_ = os.Remove(c.file.Name())
		return nil, fmt.Errorf("capture %s: %w", c.path, err)
	}
	return &report.File{Kind: "capture", Path: filepath.ToSlash(c.path) + pcaplink.CompressedSuffix, Size: size}, nil
}
