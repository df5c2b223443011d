// Package deviations knows what devices are known not to meet, and why. A file for
// each device has its cases; one that is met again is stale, and must go.
package deviations

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.yaml.in/yaml/v3"
)

//go:embed *.yaml
var files embed.FS

// Deviation is what is known of a case that a device does not pass.
type Deviation struct {
	Reason string `yaml:"reason"`
	SeenOn string `yaml:"seen-on,omitempty"`
	Link   string `yaml:"link,omitempty"`
}

// Of returns the reasons for what a device is known not to meet, by case. A device
// without a file has none.
func Of(device string) (map[string]string, error) {
	b, err := files.ReadFile(device + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("deviations/%s.yaml: %w", device, err)
	}
	return known, nil
}

// Parse reads a file of deviations: a case a key. Each has a reason.
func Parse(b []byte) (map[string]string, error) {
	all := make(map[string]Deviation)
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it has a case a key, as in 'rc/psn/gap-naked-once: {reason: …}'", err)
	}
	known := make(map[string]string, len(all))
	for id, d := range all {
		if d.Reason == "" {
			return nil, fmt.Errorf("%s: a deviation has a reason", id)
		}
		known[id] = d.Reason
		if d.SeenOn != "" {
			known[id] += fmt.Sprintf(" (seen on %s)", d.SeenOn)
		}
	}
	return known, nil
}
