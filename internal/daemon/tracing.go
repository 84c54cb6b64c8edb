package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/idemd/idemd/internal/config"
)

// flushTimeout bounds how long the last spans hold up the end of a daemon.
const flushTimeout = time.Second

// newTraces sends spans to a collector. One that is away costs spans, and no call waits
// for it.
func newTraces(ctx context.Context, t config.Tracing, logger *slog.Logger) (*sdktrace.TracerProvider, error) {
	headers, err := tracingHeaders(t.HeadersFile)
	if err != nil {
		return nil, err
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(t.Endpoint), otlptracegrpc.WithHeaders(headers)}
	if t.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("spans are lost", "error", err) }))
	return sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(t.SamplePermille)/1000))),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "idemd"))),
	), nil
}

// flush sends the last spans.
func flush(p *sdktrace.TracerProvider) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = p.Shutdown(ctx)
}

func tracingHeaders(file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := config.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("tracing.headers_file: %w", err)
	}
	headers := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, is := strings.Cut(line, ":")
		if !is || strings.TrimSpace(name) == "" {
			return nil, errors.New("tracing.headers_file has a line that is not \"name: value\"")
		}
		headers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	return headers, nil
}
