package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// refreshEvery is the default time between two pictures.
const refreshEvery = 2 * time.Second

// clearScreen has a terminal begin at its upper left corner again.
const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

// refresh prints what show prints, again and again until ctx is done. At a terminal each picture replaces the one before; in
// JSON each is one line. An outage does not end it.
func (p *program) refresh(ctx context.Context, every time.Duration, show func() error) error {
	screen, isTerminal := p.stdout, p.atTerminal()
	defer func() { p.stdout = screen }()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		var picture bytes.Buffer
		p.stdout = &picture
		err := show()
		p.stdout = screen
		switch {
		case ctx.Err() != nil:
			return cause(ctx, ctx.Err())
		case err != nil && !isOutage(err):
			return err
		case err != nil && picture.Len() == 0:
			p.tell(printable(inFlags(err.Error())))
		}
		if err := p.draw(picture.Bytes(), isTerminal); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return cause(ctx, ctx.Err())
		}
	}
}

// draw prints a picture; an empty one leaves the last as it is.
func (p *program) draw(picture []byte, isTerminal bool) error {
	var text bytes.Buffer
	switch {
	case len(picture) == 0:
		return nil
	case p.format == "json":
		if err := json.Compact(&text, picture); err != nil {
			return err
		}
	case isTerminal:
		text.WriteString(clearScreen)
		fallthrough
	default:
		text.Write(picture)
	}
	if !isTerminal || p.format == "json" {
		text.WriteByte('\n') // after a table an empty line
	}
	_, err := p.stdout.Write(text.Bytes())
	return err
}

// isOutage reports whether an error is one that ends when the group answers again.
func isOutage(err error) bool {
	var coded codeError
	return passes(err) || errors.As(err, &coded) && coded.code == exitUnavailable
}
