package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Between these lines the page belongs to this program.
const (
	beginMarker = "<!-- bench:begin -->"
	endMarker   = "<!-- bench:end -->"
)

// write writes the report to a .json file and its table into the .md file beside it.
func (r *report) write(path string) error {
	base, is := strings.CutSuffix(path, ".json")
	if !is {
		return fmt.Errorf("-out %q: want a .json file", path)
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return err
	}
	page, err := os.ReadFile(base + ".md")
	if err != nil {
		return err
	}
	updated, err := replaceBetweenMarkers(string(page), r.markdown())
	if err != nil {
		return fmt.Errorf("%s.md: %w", base, err)
	}
	return os.WriteFile(base+".md", []byte(updated), 0o644)
}

func replaceBetweenMarkers(page, text string) (string, error) {
	head, rest, begins := strings.Cut(page, beginMarker)
	_, tail, ends := strings.Cut(rest, endMarker)
	if !begins || !ends {
		return "", errors.New("the page lacks " + beginMarker + " or " + endMarker)
	}
	return head + beginMarker + "\n" + text + endMarker + tail, nil
}
