package kit

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrVersion is the error for an unknown version.
var ErrVersion = errors.New("unknown version")

// Version checks only the version of a document, before its keys are parsed. what names
// the kind of document.
func Version(text []byte, want int, what string) error {
	var head struct {
		Version *json.Number `json:"version"`
	}
	err := json.Unmarshal(text, &head)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON after %d of %d bytes: %w", syntax.Offset, len(text), err)
	case err != nil:
		return &KeyError{"version", fmt.Errorf("want the number %d: %w", want, err)}
	case head.Version == nil:
		return &KeyError{"version", fmt.Errorf("missing: this is not %s", what)}
	case head.Version.String() != fmt.Sprint(want):
		return &KeyError{"version", fmt.Errorf("%w %v: this fabrictest reads version %d", ErrVersion, *head.Version, want)}
	}
	return nil
}
